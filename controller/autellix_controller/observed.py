"""What the gateway does for calls, for all other requests: each has an id, is counted and is logged."""

import logging
import re
import time
from collections.abc import Awaitable, Callable
from typing import Final

from autellix_controller.errors import CLIENT_CLOSED, ErrorCode, shown
from autellix_controller.gateway.exchange import Message, Receive, Scope, Send
from autellix_controller.logs import fields
from autellix_controller.metrics import RequestMetrics
from autellix_controller.sessions import identity
from autellix_wire import headers as names

log = logging.getLogger(__name__)

_REQUEST_ID: Final = names.REQUEST_ID.encode()
#: Asked every few seconds by machines: in the log they would hide the rest.
_QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_CONVERTER: Final = re.compile(r":\w+\}")


class Observed:
    """An ASGI application around another one, whose requests it counts and logs by the template of their route."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], metrics: RequestMetrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        given = next((value for key, value in scope["headers"] if key == _REQUEST_ID), None)
        request = identity.request_id(given, identity.new_call())
        status = 0

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (_REQUEST_ID, request.encode())]
            await send(message)

        failed = True
        try:
            await self._app(scope, receive, observed)
            failed = False
        finally:
            # Without an answer: a defect that could not even be told, or nobody was left to tell.
            status = status or (ErrorCode.INTERNAL.status if failed else CLIENT_CLOSED)
            template = _template(scope)
            self._metrics.ended(template, scope["method"], status)
            log.log(
                logging.DEBUG if template in _QUIET else logging.INFO,
                "request",
                extra=fields(
                    request=request,
                    method=shown(scope["method"]),
                    path=shown(scope["path"]),
                    status=status,
                    seconds=round(time.monotonic() - began, 4),
                ),
            )

    def refused(self, status: int) -> None:
        """The server itself refused what came on a connection: it was no request that anybody could serve."""
        self._metrics.ended(None, None, status)
        log.info("request refused", extra=fields(status=status))


def _template(scope: Scope) -> str | None:
    """The path as the route declares it, ``/v1/sessions/{session}``; None if no route has the path."""
    path = getattr(scope.get("route"), "path", None)
    return _CONVERTER.sub("}", path) if path is not None else None
