"""The engine's own API as an endpoint plugin of vLLM.

vLLM loads it because the launcher names it in ``VLLM_PLUGINS``. Its routes are guarded like all others, by the
middleware in ``autellix_engine.api.auth``.
"""

import asyncio
import atexit
import logging
import os
from argparse import Namespace
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from prometheus_client import REGISTRY, CollectorRegistry
from starlette.datastructures import State

from autellix_engine.api.metrics import EngineMetrics
from autellix_engine.api.routes import EngineApi, router
from autellix_engine.launcher import handover
from autellix_engine.records.channel import ChannelReceiver
from autellix_engine.records.hub import RecordHub

#: How long the API server waits for the scheduler's first word. The scheduler was made before, so this is a moment.
ANNOUNCEMENT_SECONDS: Final = 30.0

logger = logging.getLogger(__name__)


class EngineNotPrepared(RuntimeError):
    """vLLM runs our API, but not our scheduler or not our launcher; the message says what to do."""


class AutellixEndpoints:
    """The plugin, as vLLM's ``EndpointPlugin`` protocol wants it.

    ``registry`` takes the metrics; the default is the one that vLLM's ``/metrics`` shows.
    """

    name = "autellix"
    required_tasks = None

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._registry = registry
        self._receiver: ChannelReceiver | None = None
        self._receiving: asyncio.Task[None] | None = None

    def attach_router(self, app: FastAPI) -> None:
        """Adds the routes."""
        app.include_router(router)

    async def init_state(self, engine_client: Any, state: State, args: Namespace) -> None:
        """Opens the record channel, and waits until the scheduler has said who it is. Raises EngineNotPrepared."""
        socket = os.environ.get(handover.RECORDS_SOCKET)
        if engine_client is None or not socket:
            raise EngineNotPrepared("Start the engine by: python3 -m autellix_engine serve")
        settings = handover.scheduling_settings(engine_client.vllm_config.additional_config)
        hub = RecordHub(settings.policy, EngineMetrics(self._registry))
        self._receiver = receiver = ChannelReceiver(socket, hub, _waker(engine_client))
        atexit.register(_clean_up, Path(socket))  # vLLM gives a plugin no hook for the end
        self._receiving = asyncio.create_task(receiver.run(), name="autellix-records")
        self._receiving.add_done_callback(_log_end)
        try:
            async with asyncio.timeout(ANNOUNCEMENT_SECONDS):
                await hub.announced.wait()
        except TimeoutError:
            self.close()
            raise EngineNotPrepared(
                f"The scheduler has not announced itself within {ANNOUNCEMENT_SECONDS:g} s: "
                "is --scheduler-cls autellix_engine.scheduler.ProgramScheduler?"
            ) from None
        state.autellix = EngineApi(hub, receiver.end_program, stopping=lambda: bool(state.server.should_exit))

    def close(self) -> None:
        """Closes the record channel. vLLM never asks for it: there the channel lives as long as the process."""
        if self._receiving is not None and self._receiver is not None:
            self._receiving.cancel()
            self._receiver.close()


def _waker(engine_client: Any) -> Callable[[], Awaitable[None]]:
    """Wakes the scheduler by a question to its process that changes nothing there."""

    async def wake() -> None:
        await engine_client.is_paused()

    return wake


def _clean_up(socket: Path) -> None:
    """Removes the sockets, and their folder if that was made for it alone, as the launcher does."""
    for path in (socket, Path(handover.reports_socket(str(socket)))):
        path.unlink(missing_ok=True)
    with suppress(OSError):
        socket.parent.rmdir()


def _log_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.critical("Call records are no longer received.", exc_info=error)
