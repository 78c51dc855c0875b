"""The HTTP client towards engines, behind a small seam: open, status, headers, chunks, close."""

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass
class _Connection:
    """What became known about the connection of one request."""

    reused: bool = False


async def _note_reuse(_: aiohttp.ClientSession, context: Any, __: aiohttp.TraceConnectionReuseconnParams) -> None:
    if isinstance(context.trace_request_ctx, _Connection):
        context.trace_request_ctx.reused = True


class AiohttpUpstream:
    """``Upstream`` over aiohttp, which pools connections."""

    def __init__(self, session: aiohttp.ClientSession, *, connect_seconds: float) -> None:
        self._session = session
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds)

    async def post(self, url: str, body: bytes, headers: Sequence[tuple[str, str]]) -> UpstreamAnswer:
        """See ``Upstream``.

        A pooled connection that the engine was just closing fails without a byte of an answer: that says nothing about
        the engine, so the call is sent once more, on another connection.
        """
        while True:
            connection = _Connection()
            try:
                response = await self._session.post(
                    url,
                    data=body,
                    headers=headers,
                    timeout=self._timeout,
                    allow_redirects=False,
                    trace_request_ctx=connection,
                )
            except aiohttp.ConnectionTimeoutError as error:
                raise NotConnected(_one_line(error)) from None
            except aiohttp.ClientConnectorError as error:
                raise Unreachable(_one_line(error)) from None
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError) as error:
                if not connection.reused:
                    raise UpstreamFailed(_one_line(error)) from None
            except aiohttp.ClientError as error:
                raise UpstreamFailed(_one_line(error)) from None
            else:
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
    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(_note_reuse)
    options["trace_configs"] = [trace]
    # vLLM closes idle connections after 5 s: we close earlier, or a call would meet a connection that is just going.
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=3.0), **options)
