"""One engine as this replica knows it."""

import bisect
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from autellix_controller.engines.health import Health, Seen
from autellix_controller.engines.load import ReportedLoad, used
from autellix_controller.logs import fields
from autellix_wire.context import ProgramContext
from autellix_wire.records import LoadReport

log = logging.getLogger(__name__)


class Endpoint(msgspec.Struct, frozen=True):
    """Where an engine is, as discovery says."""

    name: str
    url: str
    """Base URL without a slash at its end."""
    accepts: bool = True
    """It may get new calls; False while it drains."""
    outdated: bool = False
    """It is of an older revision than the newest one, so it is about to be replaced."""


class Scheduling(msgspec.Struct, frozen=True):
    """How an engine schedules calls."""

    has_records: bool
    """It keeps call records and reads program context."""
    policy: str = ""
    queue_bounds_ms: tuple[float, ...] = ()
    """Upper bounds of its levels but the last, ascending. They may follow the programs: these are as last probed."""


#: A stock engine.
NO_SCHEDULING: Final = Scheduling(has_records=False)
#: The figure of a program's history that decides its level, by policy.
LEVELS_BY: Final[Mapping[str, Callable[[ProgramContext], float]]] = {
    "mlfq": lambda context: 0.0,
    "plas": lambda context: context.service_ms,
    "atlas": lambda context: context.path_ms,
}


class Engine:
    """Health, models, load and calls of one engine. Lives as long as discovery lists it, and on while calls run."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.health = Health()
        self._models: tuple[dict[str, Any], ...] = ()
        self._model_ids: frozenset[str] = frozenset()
        self.probed = False
        """It was probed at least once, with whatever outcome."""
        self.trouble = "not probed yet"
        """Why it gets no calls; empty when all is well."""
        self.scheduling = NO_SCHEDULING
        """As the last good probe found it."""
        self.tokenizes = True
        """It answers ``/tokenize``, as far as is known."""
        self.in_flight = 0
        self._reported: ReportedLoad | None = None

    @property
    def name(self) -> str:
        """Its name: of the pod, or host and port."""
        return self.endpoint.name

    @property
    def has_records(self) -> bool:
        """It offers call records, so it understands program context."""
        return self.scheduling.has_records

    def level(self, context: ProgramContext) -> int | None:
        """The level of its queue, 0 the best, in which a call with that history starts; None if it has no levels."""
        figure = LEVELS_BY.get(self.scheduling.policy)
        if figure is None or not self.scheduling.queue_bounds_ms:
            return None
        return bisect.bisect_right(self.scheduling.queue_bounds_ms, figure(context))

    @property
    def available(self) -> bool:
        """It may get new calls."""
        return self.endpoint.accepts and self.health.reachable

    @property
    def in_rotation(self) -> bool:
        """It may get new calls, and is no outlier."""
        return self.available and self.health.well

    @property
    def models(self) -> tuple[dict[str, Any], ...]:
        """Entries of its ``/v1/models``, as they were at the last good probe."""
        return self._models

    @models.setter
    def models(self, entries: tuple[dict[str, Any], ...]) -> None:
        self._models = entries
        self._model_ids = frozenset(name for entry in entries if isinstance(name := entry.get("id"), str))

    def serves(self, model: str | None) -> bool:
        """Whether it has the model; None asks for any."""
        return model in self._model_ids if model is not None else bool(self._models)

    def used(self, now: float) -> int:
        """Calls on it, ours and others'. ``now`` is monotonic seconds."""
        return used(self.in_flight, self._reported, now)

    def reported(self, load: LoadReport, now: float) -> None:
        """Takes in a load report."""
        self._reported = ReportedLoad(load.running + load.waiting, self.in_flight, now)

    def saw(self, seen: Seen, trouble: str = "") -> None:
        """Takes in what a call or a probe met."""
        before = self.health
        self.health = before.after(seen)
        if self.health is before:
            return
        self.trouble = "" if self.health.well else trouble or self.trouble
        if before.well == self.health.well:
            return
        if self.health.well:
            log.info("engine in rotation", extra=fields(engine=self.name))
        else:
            log.warning(
                "engine out of rotation",
                extra=fields(engine=self.name, reason=trouble, failures=self.health.failures),
            )
