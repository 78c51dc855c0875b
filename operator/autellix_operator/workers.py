"""Works off the queue: calls the reconciler, backs off after failures, comes back for the resync."""

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, NoReturn

from autellix_operator.api.names import Key
from autellix_operator.kube.applier import ApiError, Conflict
from autellix_operator.metrics import Metrics
from autellix_operator.reconcile import Result
from autellix_operator.workqueue import WorkQueue

log = logging.getLogger(__name__)

#: A key rests this long before it is worked on: one change of a cluster comes as several events.
COALESCE_SECONDS: Final = 0.05
#: A key in a namespace that another operator holds is tried again after this, without a request to the API.
STANDBY_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Pace:
    """When to come back to a key. Times in seconds."""

    resync: float
    first_retry: float = 0.5
    longest_retry: float = 60.0

    def retry(self, failures: int, jitter: float) -> float:
        """The pause after so many failures in a row; ``jitter`` is a random number from 0 to 1."""
        pause = min(self.first_retry * 2.0 ** min(failures - 1, 16), self.longest_retry)
        return pause * (0.5 + jitter / 2)

    def next_resync(self, jitter: float) -> float:
        """The time to the next look without any reason, spread so that clusters do not come all at once."""
        return self.resync * (0.5 + jitter / 2)


class ReferenceIndex:
    """Which clusters refer to which objects of others, as of their last reconcile."""

    def __init__(self) -> None:
        self._objects: dict[Key, frozenset[tuple[str, str]]] = {}

    def set(self, cluster: Key, objects: frozenset[tuple[str, str]]) -> None:
        """Replaces what a cluster refers to: kinds and names."""
        if objects:
            self._objects[cluster] = objects
        else:
            self._objects.pop(cluster, None)

    def clusters(self, namespace: str, kind: str, name: str) -> list[Key]:
        """The clusters that refer to an object."""
        return [key for key, found in self._objects.items() if key.namespace == namespace and (kind, name) in found]


class Worker:
    """Takes keys from the queue for ever. Several may share their arguments.

    ``leads`` says of a namespace whether this operator may work on it.
    """

    def __init__(
        self,
        queue: WorkQueue,
        reconcile: Callable[[Key], Awaitable[Result]],
        pace: Pace,
        references: ReferenceIndex,
        metrics: Metrics,
        random: Callable[[], float],
        clock: Callable[[], float],
        leads: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._queue = queue
        self._reconcile = reconcile
        self._pace = pace
        self._references = references
        self._metrics = metrics
        self._random = random
        self._clock = clock
        self._leads = leads
        self._failures: defaultdict[Key, int] = defaultdict(int)

    async def run(self) -> NoReturn:
        """Works until cancelled."""
        while True:
            key = await self._queue.get()
            started = self._clock()
            try:
                outcome = await self._work(key)
            finally:
                self._queue.done(key)
            self._metrics.reconciled(outcome, self._clock() - started)

    async def _work(self, key: Key) -> str:
        try:
            if not await self._leads(key.namespace):
                self._queue.add(key, STANDBY_SECONDS)
                self._metrics.clusters.forget(key)
                return "standby"
            result = await self._reconcile(key)
        except Conflict as error:
            log.debug("%s: somebody else was first: %s", key, error)
            return self._again(key, "conflict")
        except ApiError as error:
            log.warning("%s: %s: %s", key, error.reason, error)
            return self._again(key, "api-error")
        except Exception:
            # A defect in one cluster's reconcile must not stop the work on the others.
            log.exception("%s: unexpected error", key)
            return self._again(key, "error")
        self._failures.pop(key, None)
        self._references.set(key, result.references)
        if not result.exists:
            self._metrics.clusters.forget(key)
            return "gone"
        if result.readiness is not None:
            self._metrics.clusters.set(key, ready=result.readiness.ready, reason=result.readiness.reason)
        resync = self._pace.next_resync(self._random())
        self._queue.add(key, min(resync, result.requeue_after or resync))
        return "ok"

    def _again(self, key: Key, outcome: str) -> str:
        self._failures[key] += 1
        self._queue.add(key, self._pace.retry(self._failures[key], self._random()))
        return outcome
