"""Asks pods for their metrics over HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Protocol

import aiohttp
from yarl import URL

#: A pod that is busy answers late; nobody waits for it.
_SECONDS: Final = 3.0
#: More than any of our parts has to say.
_MOST_BYTES: Final = 4 << 20


class Scraper(Protocol):
    """Reads a pod's metrics."""

    async def page(self, address: str, port: int, key: str = "") -> str | None:
        """The page, or None if the pod does not answer with one. ``key`` is shown as bearer token."""
        ...


class HttpScraper:
    """The Scraper over HTTP."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def page(self, address: str, port: int, key: str = "") -> str | None:
        """See Scraper."""
        url = URL.build(scheme="http", host=address, port=port, path="/metrics")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            async with self._session.get(url, headers=headers, allow_redirects=False) as answer:
                if answer.status != 200:
                    return None
                body = await answer.content.read(_MOST_BYTES)
                return body.decode(errors="replace") if answer.content.at_eof() else None
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None


@asynccontextmanager
async def http_scraper() -> AsyncIterator[HttpScraper]:
    """A scraper whose connections end with it."""
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=64)) as session:
        yield HttpScraper(session)
