"""The settings of the scheduler: one validated model, given to the engine as JSON."""

import itertools
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

Duration = Annotated[float, Field(gt=0, allow_inf_nan=False)]
DurationOrZero = Annotated[float, Field(ge=0, allow_inf_nan=False)]
# Told apart by type, so that an error speaks of what was meant.
Bounds = Annotated[
    Annotated[Literal["auto"], Tag("word")] | Annotated[tuple[Duration, ...], Tag("numbers")],
    Discriminator(lambda given: "word" if isinstance(given, str) else "numbers"),
]


class InvalidSettings(ValueError):
    """The scheduling settings are wrong; the message is one line that names each field and what is allowed."""


class SchedulingSettings(BaseModel):
    """How the engine schedules programs. Durations are executor time in milliseconds unless the name says otherwise.

    The defaults fit models of some ten milliseconds a step. What matters is the top bound: at least about twice the
    service of a usual program, or most programs end up in the last level and are served in order of arrival. With
    ``auto`` it follows what programs are served (see ``levels``).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    policy: Literal["fcfs", "mlfq", "plas", "atlas"] = "plas"
    """Order of calls: by arrival, by the call's own service, by the program's summed service, by its longest path."""
    queue_bounds_ms: Bounds = "auto"
    """Upper bounds of all levels but the last: K - 1 bounds make K levels. A call starts in level i if its program's
    service s satisfies bound[i-1] <= s < bound[i]. ``auto``: eight levels, at first with 1, 2, 4, ... 64 s."""
    quanta_ms: tuple[Duration, ...] | None = None
    """Service that moves a call from each level to the next, one for each bound given. Default: the width of the
    level. The last level needs none."""
    starvation_ratio: Duration = 4.0
    """Beta: a waiting call moves to the best level when (program wait + call wait) / (program service + call
    service) reaches it. Not a duration but a plain number. At 1 nearly every call is promoted and the order by
    service is lost."""
    starvation_floor_ms: Duration = 1_000.0
    """The least program service in that ratio: a fresh program starves after beta times this, not at once."""
    steps_per_decision: Annotated[int, Field(ge=1, le=1_000)] = 1
    """Engine steps between two decisions, if nothing arrives or finishes in between."""
    spare_calls: Annotated[int, Field(ge=0, le=1_000)] = 0
    """Calls that may take the slot of a finished one between two decisions without asking for a new one."""
    max_preemptions_per_step: Annotated[int, Field(ge=0, le=1_000)] = 4
    """Most calls that give way in one decision; 0: a call keeps its slot until it ends or memory runs out."""
    min_run_ms: DurationOrZero | None = None
    """Service that a resumed call gets before it may give way again, unless memory forces it out. Default: the
    quantum of the best level, so that a call is preempted once for each such quantum that it uses, and once more."""
    program_idle_seconds: Duration = 3_600.0
    """A program without calls for this long is forgotten. Longer than the session timeout of the controllers."""
    max_programs: Annotated[int, Field(ge=1, le=10_000_000)] = 50_000
    """Programs remembered at most; beyond, the one idle for longest is forgotten."""

    @field_validator("queue_bounds_ms")
    @classmethod
    def _ascending(cls, bounds: str | tuple[float, ...]) -> str | tuple[float, ...]:
        if isinstance(bounds, str):
            return bounds
        if any(lower >= upper for lower, upper in itertools.pairwise(bounds)):
            raise ValueError("must ascend strictly")
        if len(bounds) > 63:
            raise ValueError("at most 63 bounds are allowed")
        return bounds

    @model_validator(mode="after")
    def _one_quantum_a_bound(self) -> Self:
        if self.quanta_ms is not None and isinstance(self.queue_bounds_ms, str):
            raise ValueError(
                "quanta_ms: allowed only with queue_bounds_ms; with auto they are the widths of the levels"
            )
        if self.quanta_ms is not None and len(self.quanta_ms) != len(self.queue_bounds_ms):
            raise ValueError(
                f"quanta_ms: {len(self.quanta_ms)} given, but there must be one for each of the "
                f"{len(self.queue_bounds_ms)} bounds in queue_bounds_ms"
            )
        return self

    @cached_property
    def as_json(self) -> dict[str, object]:
        """The settings as plain values."""
        return self.model_dump(mode="json")

    @classmethod
    def parse(cls, value: str | Mapping[str, object]) -> Self:
        """Reads the settings from JSON text or from what JSON text decodes to.

        Raises InvalidSettings if a field is unknown or out of range.
        """
        try:
            return cls.model_validate_json(value if isinstance(value, str) else json.dumps(dict(value)))
        except ValidationError as error:
            raise InvalidSettings("; ".join(cls._explain(e) for e in error.errors(include_url=False))) from error
        except TypeError as error:
            raise InvalidSettings(f"scheduling: not representable as JSON: {error}") from error

    @classmethod
    def _explain(cls, error: ErrorDetails) -> str:
        path = (
            part for part in error["loc"] if isinstance(part, int) or part in cls.model_fields or len(error["loc"]) == 1
        )
        field = ".".join(map(str, ("scheduling", *path)))
        match error["type"]:
            case "extra_forbidden":
                return f"{field}: unknown; allowed are {', '.join(cls.model_fields)}"
            case "json_invalid":
                return f"{field}: {error['msg']}"
            case "value_error":
                return f"{field}: {error['ctx']['error']}"
            case _:
                return f"{field}: {error['msg']}, not {error['input']!r}"
