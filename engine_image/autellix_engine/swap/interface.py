"""What the scheduler and the host tier say to each other."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Fits: TypeAlias = Callable[[Any, Sequence[Any]], bool]
"""Whether a call fits once these running calls have given way."""


@dataclass(frozen=True, slots=True)
class CallTraffic:
    """What swapping did for one call."""

    bytes_moved: int = 0
    """Bytes of its transfers in both directions, as far as they were planned when it ended."""
    host_tokens: int = 0
    """Prompt tokens that were brought from host memory when it first ran."""


class HostTierPort(Protocol):
    """The scheduler's view. Requests are vLLM's."""

    def expect(self, request_id: str, program: str, level: int, *, transient: bool) -> None:
        """Says whose the request is; comes before vLLM takes the request in. ``transient``: its program is this one
        call."""

    def preempted(self, request: Any, level: int) -> None:
        """The request is about to lose its blocks on the GPU."""

    def end_program(self, program: str) -> None:
        """The program is over."""

    def traffic(self, request_id: str) -> CallTraffic:
        """What swapping did for a request that is about to end."""

    def weigh(self, fits: Fits, requests: Mapping[str, Any], running: Iterable[Any]) -> Fits:
        """Adds the price to a forecast of memory: a call that gave way must come back, which may cost more than the
        better call gains. ``requests`` are all by their id, ``running`` those that run."""

    def stepped(self, output: Any, seconds: float) -> None:
        """A step of the engine took so long."""


class NoHostTier:
    """Stands in where swapping is off."""

    def expect(self, request_id: str, program: str, level: int, *, transient: bool) -> None:
        """Nothing is kept."""

    def preempted(self, request: Any, level: int) -> None:
        """Nothing is kept."""

    def end_program(self, program: str) -> None:
        """Nothing is kept."""

    def traffic(self, request_id: str) -> CallTraffic:
        """None."""
        return CallTraffic()

    def weigh(self, fits: Fits, requests: Mapping[str, Any], running: Iterable[Any]) -> Fits:
        """The forecast as it is."""
        return fits

    def stepped(self, output: Any, seconds: float) -> None:
        """Nobody counts."""


def host_tier(connector: object) -> HostTierPort:
    """The host tier behind vLLM's connector, or one that does nothing if that is none of ours."""
    port = getattr(connector, "host_tier", None)
    return port if port is not None else NoHostTier()
