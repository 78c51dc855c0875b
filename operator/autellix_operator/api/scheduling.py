"""The settings of the engines' scheduler."""

import itertools
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from autellix_operator.api.base import Milliseconds, SpecModel


class Policy(StrEnum):
    """Orders in which engines serve calls."""

    ATLAS = "Atlas"
    PLAS = "Plas"
    MLFQ = "Mlfq"
    FCFS = "Fcfs"


class Scheduling(SpecModel):
    """Settings of the engines' scheduler."""

    policy: Annotated[Policy, Field(strict=False)] = Policy.PLAS
    queue_bounds_milliseconds: Annotated[tuple[Milliseconds, ...], Field(max_length=63, strict=False)] | None = None
    """None: the engines choose, and follow what programs are served."""
    quanta_milliseconds: Annotated[tuple[Milliseconds, ...], Field(max_length=63, strict=False)] | None = None
    starvation_ratio_percent: Annotated[int, Field(ge=1, le=1_000_000)] = 400
    starvation_floor_milliseconds: Milliseconds = 1000
    steps_per_decision: Annotated[int, Field(ge=1, le=1000)] = 1
    spare_calls: Annotated[int, Field(ge=0, le=1000)] = 0
    max_preemptions_per_step: Annotated[int, Field(ge=0, le=1000)] = 4
    minimum_run_milliseconds: Annotated[int, Field(ge=0, le=86_400_000)] | None = None
    program_idle_seconds: Annotated[int, Field(ge=1, le=2_592_000)] | None = None
    max_programs: Annotated[int, Field(ge=1, le=10_000_000)] = 50_000

    @field_validator("queue_bounds_milliseconds")
    @classmethod
    def _ascend(cls, bounds: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if bounds and any(low >= high for low, high in itertools.pairwise(bounds)):
            raise ValueError("queueBoundsMilliseconds must ascend, without equal items")
        return bounds

    @model_validator(mode="after")
    def _one_quantum_for_each_bound(self) -> Self:
        if self.quanta_milliseconds is not None and (
            self.queue_bounds_milliseconds is None
            or len(self.quanta_milliseconds) != len(self.queue_bounds_milliseconds)
        ):
            raise ValueError("quantaMilliseconds must have as many items as queueBoundsMilliseconds")
        return self
