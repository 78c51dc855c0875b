"""Calls of the scheduler's tests: of programs that have been served a lot, and of fresh ones."""

from typing import Any

from vllm.v1.request import Request

from autellix_wire.context import ProgramContext
from support.model_free import Driver, make_request

#: Two bounds; a running call may be preempted at once.
LEVELS = {"queue_bounds_ms": [100, 1_000], "min_run_ms": 0}


def program(name: str, call: str | None = None, **fields: Any) -> ProgramContext:
    return ProgramContext(program=name, call=call or f"call of {name}", replica="controller-0", **fields)


def long(name: str, output: int = 60, **kwargs: Any) -> Request:
    """A call of a program that has been served a lot."""
    return make_request(name, prompt=40, output=output, context=program(name, service_ms=5_000.0), **kwargs)


def short(name: str = "short", **kwargs: Any) -> Request:
    """A call of a fresh program."""
    return make_request(name, **({"prompt": 8, "output": 4} | kwargs), context=program(name))


def assert_complete(driver: Driver, name: str, prompt: int, output: int) -> None:
    """Every position once, in order: what the request would have got uninterrupted."""
    assert driver.tokens[name] == list(range(prompt, prompt + output))
