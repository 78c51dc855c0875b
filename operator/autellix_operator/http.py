"""Health and metrics over HTTP.

Not kopf's liveness endpoint, which says that the process runs: /healthz says that work gets done, /readyz that the
watches run.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from autellix_operator.metrics import Metrics
from autellix_operator.workqueue import WorkQueue

#: A reconcile takes well under a second, and each of its requests has a deadline: this one hangs.
_STUCK_SECONDS: Final = 300.0


class CannotListen(Exception):
    """The address cannot be used; the message says why."""


def application(queue: WorkQueue, metrics: Metrics, ready: Callable[[], bool]) -> web.Application:
    """The routes."""

    async def healthz(_: web.Request) -> web.Response:
        busy = queue.longest_active
        if busy > _STUCK_SECONDS:
            return web.json_response({"status": "stuck", "longest_reconcile_seconds": round(busy)}, status=503)
        return web.json_response({"status": "ok"})

    async def readyz(_: web.Request) -> web.Response:
        if not ready():
            return web.json_response({"status": "starting"}, status=503)
        return web.json_response({"status": "ok"})

    async def show_metrics(_: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), headers={"Content-Type": "text/plain; version=1.0.0; charset=utf-8"})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", show_metrics)])
    return app


@asynccontextmanager
async def serving(app: web.Application, host: str, port: int) -> AsyncIterator[None]:
    """Serves the routes meanwhile. Raises CannotListen."""
    runner = web.AppRunner(app, handle_signals=False, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise CannotListen(str(error.strerror or error)) from error
        yield
    finally:
        await runner.cleanup()
