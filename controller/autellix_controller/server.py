"""Runs a controller replica: listens, serves, and stops in order on SIGTERM or SIGINT."""

import asyncio
import contextlib
import functools
import gc
import logging
import signal
import socket
import sys
from collections.abc import Iterator

import uvicorn

from autellix_controller import shared_port
from autellix_controller.access import KeysFile
from autellix_controller.controller import Controller
from autellix_controller.engines.keys import EngineKeys
from autellix_controller.logs import fields
from autellix_controller.protocol import HttpProtocol
from autellix_controller.settings import Settings

log = logging.getLogger(__name__)

#: Idle connections of clients stay open longer than the pools of usual clients and proxies keep theirs.
_KEEP_ALIVE_SECONDS = 75
#: What may pass between the end of the drain and that of the last connection.
_CLOSE_SECONDS = 5
#: How often a replica that shares its port looks whether it is ready.
_LOOK_SECONDS = 0.05


class _Server(uvicorn.Server):
    """uvicorn without its own handling of signals, which would end the process by the signal itself."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(settings: Settings) -> socket.socket:
    """The listening socket; one that shares its port listens only when it is served. Raises OSError.

    Its connections die with what a client has not taken for the idle deadline. Closing one would wait for that client
    for ever: an answer that was given up would keep its buffers and its connection.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    if settings.share_port:
        sock = shared_port.bind(settings.host, settings.port, family)
    else:
        sock = socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    if sys.platform == "linux":
        milliseconds = max(1, int(settings.idle_deadline_seconds * 1000))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
    return sock


def http_server(controller: Controller, settings: Settings) -> uvicorn.Server:
    """The HTTP server around a replica; it handles no signals."""
    config = uvicorn.Config(
        controller,
        # Made for each connection; uvicorn calls whatever it gets here.
        http=functools.partial(  # type: ignore[arg-type]
            HttpProtocol, head_seconds=settings.body_deadline_seconds, refused=controller.observed.refused
        ),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(settings.drain_seconds) + _CLOSE_SECONDS,
    )
    return _Server(config)


async def serve(settings: Settings, sock: socket.socket, *, keys: KeysFile | None, engine_keys: EngineKeys) -> None:
    """Serves until a signal comes, then drains: first the replica stops being ready and goes on as before, for the
    notice; then it takes no new connections and lets running calls end; at the deadline it ends what still runs.

    On a shared port it serves from when it is ready, and leaves new connections to others from the signal on.
    """
    stop, hurry = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (hurry if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    async with Controller(settings, keys=keys, engine_keys=engine_keys) as controller:
        if settings.share_port and not await _ready(controller, stop):
            sock.close()
            return
        _keep_what_was_loaded()
        server = http_server(controller, settings)
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        host, port = sock.getsockname()[:2]
        log.info("listening", extra=fields(address=f"{host}:{port}", replica=settings.replica))
        await asyncio.wait({serving, asyncio.create_task(stop.wait())}, return_when=asyncio.FIRST_COMPLETED)
        controller.leave()
        log.info("stopping", extra=fields(notice_seconds=settings.drain_notice_seconds))
        if settings.share_port:
            await _leave_port(server, sock)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(hurry.wait(), settings.drain_notice_seconds)
        server.should_exit = True
        await asyncio.wait(
            {serving, asyncio.create_task(hurry.wait())},
            timeout=settings.drain_seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        controller.interrupt_calls()
        await serving
    log.info("stopped")


def _keep_what_was_loaded() -> None:
    """Sees to it that the garbage collector stops no call for long: what was loaded until now stays for good, and to
    look at all of it again would take a few hundredths of a second each time.

    How often it looks stays as it is: connections leave cycles, so with fewer looks the memory grew under churn.
    """
    gc.collect()
    gc.freeze()


async def _ready(controller: Controller, stop: asyncio.Event) -> bool:
    """Returns once the replica is ready; False if it is to stop before."""
    while not controller.readiness().ready:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _LOOK_SECONDS)
        if stop.is_set():
            return False
    return True


async def _leave_port(server: uvicorn.Server, sock: socket.socket) -> None:
    """Leaves new connections to the other processes of the port; those that are made stay."""
    shared_port.turn_newcomers_away(sock)
    await asyncio.sleep(shared_port.HANDSHAKE_SECONDS)
    for listening in server.servers:
        listening.close()
