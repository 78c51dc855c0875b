"""The four policies: what of a program's history a new call inherits. Nothing else tells them apart.

A policy holds no state. A new one is added to ``POLICIES`` and is then covered by the conformance suite.
"""

from types import MappingProxyType
from typing import Final, Protocol

from autellix_engine.policy.programs import Program


class Policy(Protocol):
    """Where a call of a program starts, and what counts for its starvation. All durations are milliseconds."""

    @property
    def name(self) -> str:
        """The name in the settings."""

    @property
    def multilevel(self) -> bool:
        """Whether calls are spread over levels; if not there is one queue, no preemption and no promotion."""

    @property
    def by_program(self) -> bool:
        """Whether the services that levels tell apart are those of programs; if not, those of single calls."""

    def service_ms(self, program: Program) -> float:
        """Service that a call of the program inherits: it decides the level in which the call starts."""

    def wait_ms(self, program: Program) -> float:
        """Wait that a call of the program inherits: it counts towards starvation."""


class Fcfs:
    """First come, first served: one queue of calls."""

    name: Final = "fcfs"
    multilevel: Final = False
    by_program: Final = False

    def service_ms(self, program: Program) -> float:
        return 0.0

    def wait_ms(self, program: Program) -> float:
        return 0.0


class Mlfq:
    """Multi-level feedback queue over calls: every call starts in the best level, its program counts for nothing."""

    name: Final = "mlfq"
    multilevel: Final = True
    by_program: Final = False

    def service_ms(self, program: Program) -> float:
        return 0.0

    def wait_ms(self, program: Program) -> float:
        return 0.0


class Plas:
    """Program-level attained service: the sum over the program's finished calls."""

    name: Final = "plas"
    multilevel: Final = True
    by_program: Final = True

    def service_ms(self, program: Program) -> float:
        return program.service_ms

    def wait_ms(self, program: Program) -> float:
        return program.wait_ms


class Atlas:
    """Thread-level attained service: the longest path of finished calls, so that parallel calls do not add up."""

    name: Final = "atlas"
    multilevel: Final = True
    by_program: Final = True

    def service_ms(self, program: Program) -> float:
        return program.path_ms

    def wait_ms(self, program: Program) -> float:
        return program.wait_ms


POLICIES: Final = MappingProxyType({policy.name: policy for policy in (Fcfs(), Mlfq(), Plas(), Atlas())})
