"""The plugin's life, with a scheduler at the other end of the channel and without."""

import asyncio
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.datastructures import State

from autellix_engine.api import plugin
from autellix_engine.api.plugin import AutellixEndpoints, EngineNotPrepared
from autellix_engine.launcher import handover
from autellix_engine.policy.settings import SchedulingSettings
from autellix_engine.records.channel import make_publisher


@pytest.fixture
def socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "records.sock"
    monkeypatch.setenv(handover.RECORDS_SOCKET, str(path))
    return path


def engine_client(settings: SchedulingSettings | None = None) -> SimpleNamespace:
    async def is_paused() -> bool:
        return False

    return SimpleNamespace(
        is_paused=is_paused,
        vllm_config=SimpleNamespace(additional_config=handover.additional_config(settings or SchedulingSettings())),
    )


async def test_it_is_ready_when_the_scheduler_has_said_who_it_is(socket: Path) -> None:
    publisher = make_publisher({handover.RECORDS_SOCKET: str(socket), handover.ENGINE_NAME: "engine-0"})
    endpoints, state = AutellixEndpoints(CollectorRegistry()), State()
    await endpoints.init_state(engine_client(SchedulingSettings(policy="atlas")), state, Namespace())
    hub = state.autellix.hub
    assert (hub.policy, hub.load.engine, hub.ring.incarnation) == ("atlas", "engine-0", publisher.incarnation)
    state.server = SimpleNamespace(should_exit=False)
    assert not state.autellix.stopping()
    state.server.should_exit = True
    assert state.autellix.stopping()
    await state.autellix.end_program("p")
    while not (ended := publisher.ended_programs()):
        await asyncio.sleep(0.01)
    assert ended == ["p"]
    endpoints.close()
    publisher.close()


async def test_another_scheduler_stops_the_start_with_what_to_do(socket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "ANNOUNCEMENT_SECONDS", 0.05)
    with pytest.raises(EngineNotPrepared, match=r"--scheduler-cls autellix_engine\.scheduler\.ProgramScheduler"):
        await AutellixEndpoints(CollectorRegistry()).init_state(engine_client(), State(), Namespace())


async def test_without_the_launcher_the_start_stops_and_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(handover.RECORDS_SOCKET, raising=False)
    with pytest.raises(EngineNotPrepared, match="python3 -m autellix_engine serve"):
        await AutellixEndpoints(CollectorRegistry()).init_state(engine_client(), State(), Namespace())


def test_its_routes_are_all_under_one_prefix() -> None:
    app = FastAPI(openapi_url=None)
    AutellixEndpoints(CollectorRegistry()).attach_router(app)
    paths = {getattr(route, "path", "") for route in app.routes}
    assert paths == {"/autellix/v1/records", "/autellix/v1/state", "/autellix/v1/programs/{program:path}"}
