"""The exchange of the engines' key, as one controller and two engines live through it."""

import asyncio
from pathlib import Path

from support.fake_engine import fake_engine
from support.running_controller import Replica, eventually, running_controller


def reads(replica: Replica, path: Path, *keys: str) -> None:
    """The replica's node has the new Secret."""
    path.write_text("".join(f"{key}\n" for key in keys))
    assert replica.engine_keys.file is not None
    assert replica.engine_keys.file.reload_if_changed()


async def test_no_call_fails_while_the_key_is_exchanged_whoever_learns_of_it_first(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("old-key\n")
    async with (
        fake_engine("a", key="old-key") as first,
        fake_engine("b", key="old-key") as second,
        running_controller(first, second, engine_key_file=path, routing_policy="round_robin") as replica,
    ):
        ended, statuses = asyncio.Event(), []

        async def caller(number: int) -> None:
            while not ended.is_set():
                response, _ = await replica.chat(f"program-{number}", stream=bool(number % 2))
                statuses.append(response.status)

        async def some_calls() -> None:
            goal = len(statuses) + 20
            await eventually(lambda: len(statuses) >= goal, "calls go on")

        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(caller(number))
            await some_calls()
            first.keys = {"new-key", "old-key"}
            await some_calls()
            reads(replica, path, "new-key", "old-key")
            await some_calls()
            assert second.refused, "an engine that knows the former key alone was met"
            second.keys = {"new-key", "old-key"}
            await some_calls()
            first.keys = {"new-key"}
            await some_calls()
            reads(replica, path, "new-key")
            second.keys = {"new-key"}
            refused = first.refused, second.refused
            await some_calls()
            ended.set()
        assert set(statuses) == {200}
        assert (first.refused, second.refused) == refused, "the former key is shown no more"
        engines = {engine.name: engine for engine in replica.controller.fleet}
        await eventually(lambda: all(engine.in_rotation for engine in engines.values()), "both engines serve")


async def test_a_call_that_was_shown_two_keys_is_served_and_charged_once(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("new-key\nold-key\n")
    async with fake_engine(key="old-key") as engine, running_controller(engine, engine_key_file=path) as replica:
        response, _ = await replica.chat("s1")
        assert (response.status, len(engine.calls)) == (200, 1)
        async with asyncio.timeout(60):
            while not (found := (await replica.json("GET", "/v1/sessions/s1"))[1])["calls"]:
                await asyncio.sleep(0.01)
        assert (found["calls"], found["service_ms"]) == (1, 100)


async def test_an_engine_that_knows_none_of_the_keys_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("new-key\nold-key\n")
    async with fake_engine(key="another") as engine, running_controller(engine, engine_key_file=path) as replica:
        await eventually(lambda: bool(replica.controller.fleet.troubles()), "the trouble is seen")
        (trouble,) = replica.controller.fleet.troubles()
        assert "refuses the engine key" in trouble
        assert "new-key" not in trouble
        assert not engine.calls
