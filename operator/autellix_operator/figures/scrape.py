"""Asks pods for their metrics and their readiness over HTTP."""

from collections.abc import AsyncIterator, Container, Mapping
from contextlib import asynccontextmanager
from typing import Final, Protocol

import aiohttp
from yarl import URL

#: A pod that is busy answers late; nobody waits for it.
_SECONDS: Final = 3.0
#: More than any of our parts has to say.
_MOST_BYTES: Final = 4 << 20


class Scraper(Protocol):
    """Reads what a pod says of itself."""

    async def page(self, address: str, port: int, key: str = "") -> str | None:
        """Its metrics, or None if it does not answer with them. ``key`` is shown as bearer token."""
        ...

    async def readiness(self, address: str, port: int) -> bytes | None:
        """Why it is ready or not, in its own words; None if it does not answer."""
        ...


class HttpScraper:
    """The Scraper over HTTP."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def page(self, address: str, port: int, key: str = "") -> str | None:
        """See Scraper."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        body = await self._body(_url(address, port, "/metrics"), headers, (200,))
        return None if body is None else body.decode(errors="replace")

    async def readiness(self, address: str, port: int) -> bytes | None:
        """See Scraper."""
        return await self._body(_url(address, port, "/readyz"), {}, (200, 503))

    async def _body(self, url: URL, headers: Mapping[str, str], expected: Container[int]) -> bytes | None:
        try:
            async with self._session.get(url, headers=headers, allow_redirects=False) as answer:
                if answer.status not in expected:
                    return None
                body = await answer.content.read(_MOST_BYTES)
                return body if answer.content.at_eof() else None
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None


def _url(address: str, port: int, path: str) -> URL:
    return URL.build(scheme="http", host=address, port=port, path=path)


@asynccontextmanager
async def http_scraper() -> AsyncIterator[HttpScraper]:
    """A scraper whose connections end with it."""
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=64)) as session:
        yield HttpScraper(session)
