"""The HTTP client towards engines, behind a small seam: open, status, headers, chunks, close."""

from collections.abc import Sequence
from typing import Any, Protocol

import aiohttp


class UpstreamFailed(Exception):
    """An engine could not be asked, or its answer broke off. The message is one line for logs."""


class NotConnected(UpstreamFailed):
    """No connection was made in time: the engine never saw the call. It may be busy, or gone."""


class Unreachable(NotConnected):
    """Connections are refused: nothing listens there."""


class UpstreamAnswer(Protocol):
    """An answer whose head has arrived."""

    @property
    def status(self) -> int:
        """HTTP status."""

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """Headers as they came."""

    async def chunk(self) -> bytes:
        """The next bytes as they arrived, empty at the end. Raises UpstreamFailed if the answer breaks off."""

    def close(self) -> None:
        """Ends the exchange; before the end of the answer this closes the connection, which aborts the call."""


class Upstream(Protocol):
    """Sends calls to engines."""

    async def post(self, url: str, body: bytes, headers: Sequence[tuple[str, str]]) -> UpstreamAnswer:
        """Sends a call and waits for the head of its answer. Raises UpstreamFailed.

        When cancelled it closes the connection, which aborts the call on the engine.
        """


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200].replace("\n", " ")


class AiohttpUpstream:
    """``Upstream`` over aiohttp, which pools connections."""

    def __init__(self, session: aiohttp.ClientSession, *, connect_seconds: float) -> None:
        self._session = session
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds)

    async def post(self, url: str, body: bytes, headers: Sequence[tuple[str, str]]) -> UpstreamAnswer:
        """See ``Upstream``."""
        try:
            response = await self._session.post(
                url, data=body, headers=headers, timeout=self._timeout, allow_redirects=False
            )
        except aiohttp.ConnectionTimeoutError as error:
            raise NotConnected(_one_line(error)) from None
        except aiohttp.ClientConnectorError as error:
            raise Unreachable(_one_line(error)) from None
        except (aiohttp.ClientError, ConnectionError) as error:
            raise UpstreamFailed(_one_line(error)) from None
        return _AiohttpAnswer(response)


class _AiohttpAnswer:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        return self._response.raw_headers

    async def chunk(self) -> bytes:
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, ConnectionError) as error:
            raise UpstreamFailed(_one_line(error)) from None

    def close(self) -> None:
        if self._response.content.is_eof():
            self._response.release()
        else:
            self._response.close()


def new_session() -> aiohttp.ClientSession:
    """The pool of connections to engines. Create it on the event loop that uses it."""
    options: dict[str, Any] = {"auto_decompress": False, "cookie_jar": aiohttp.DummyCookieJar(), "trust_env": False}
    # vLLM closes idle connections after 5 s: we close earlier, or a call would meet a connection that is just going.
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=3.0), **options)
