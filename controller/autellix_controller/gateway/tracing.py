"""What the gateway needs of a tracer. Without one, clients' trace context passes to the engines as it came."""

from collections.abc import Iterable, Sequence
from typing import Protocol


class Span(Protocol):
    """The span of one call."""

    def carrier(self) -> Sequence[tuple[str, str]]:
        """Headers with the W3C trace context for the engine: names in lower case."""

    def end(self, status: int, error: str, attributes: Iterable[tuple[str, str | int | float]]) -> None:
        """Ends the span with the call's status, an error (empty: none) and what its receipt says."""


class Tracing(Protocol):
    """Starts spans."""

    def start(self, route: str, headers: Sequence[tuple[bytes, bytes]]) -> Span:
        """A span for a call on the route, child of the one that the client's headers name."""
