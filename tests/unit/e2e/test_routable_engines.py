"""What is said of the engines that controllers give calls to."""

from support.fake_engine import fake_engine
from support.routable_engines import RoutableEngines, watched_engines
from support.running_controller import eventually, running_controller


def page(**engines: int) -> str:
    samples = (f'autellix_controller_engine_available{{engine="{name}"}} {value}.0' for name, value in engines.items())
    return "\n".join(["# TYPE autellix_controller_engine_available gauge", *samples, "another_metric 1.0"])


def test_the_worst_moment_of_the_worst_controller_counts() -> None:
    seen = RoutableEngines()
    for controller, engines in (("a", {"x": 1, "y": 1}), ("b", {"x": 1, "y": 0}), ("a", {"x": 1, "y": 1, "z": 1})):
        seen.look(controller, 1.0, page(**engines))
    assert (seen.fewest, seen.looks) == (1, 3)
    seen.look("b", 2.0, page())
    assert seen.fewest == 0


def test_an_engine_served_as_long_as_every_controller_that_knew_it_gave_it_calls() -> None:
    seen = RoutableEngines()
    for at, controller, engines in (
        (1.0, "a", {"x": 1, "y": 1}),
        (1.5, "b", {"x": 1}),
        (2.0, "a", {"x": 1, "y": 0}),
        (2.5, "b", {"x": 0}),
        (3.0, "a", {}),
    ):
        seen.look(controller, at, page(**engines))
    assert seen.served_until(staying=["z"]) == {"x": 1.5, "y": 1.0}
    assert seen.served_until(staying=["x"]) == {"y": 1.0}


async def test_controllers_are_asked_beside_all_else() -> None:
    async with fake_engine() as engine, running_controller(engine) as replica, watched_engines([replica.url]) as seen:
        await eventually(lambda: seen.looks >= 2, "two looks")
        assert seen.fewest == 1
        await engine.stop()
        await eventually(lambda: seen.fewest == 0, "the engine is missed")
