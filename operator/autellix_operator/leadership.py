"""Which namespaces this operator works on, so that two operators that were started by mistake do no harm.

An operator for some namespaces holds a Lease in each of them; one for all namespaces holds a single Lease, in the
namespace `default`, and leaves alone every namespace that another operator holds: it looks before each piece of work.
What is not held is left to wait, without a request to the API. A Lease that cannot be renewed in time is given up
before another may take it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn

from autellix_operator.kube.applier import LEASE, ApiError, Applier, Conflict, NotFound, Object

log = logging.getLogger(__name__)

#: Lease of an operator for the namespace that it lies in.
LEASE_NAME: Final = "autellix-operator"
#: Lease of an operator for all namespaces, and where it lies: in the one namespace that every Kubernetes has.
GLOBAL_LEASE_NAME: Final = "autellix-operator-all"
GLOBAL_LEASE_NAMESPACE: Final = "default"

#: The customary figures: a holder that is silent for so long has lost it, one that cannot renew gives up earlier.
DURATION_SECONDS: Final = 15
RENEW_WITHIN_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 2.0
#: For so long it is not asked again whether somebody who holds a namespace still does.
_ASKED_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A Lease of somebody, as it was when it last changed."""

    version: str
    at: float
    """When it was seen to change, on the monotonic clock: clocks of other machines are not relied on."""


class Leadership:
    """Acquires, renews and releases. ``identity`` must be another one for each process.

    ``clock`` gives monotonic seconds, ``now`` the time of day.
    """

    def __init__(
        self,
        applier: Applier,
        identity: str,
        namespaces: Sequence[str],
        clock: Callable[[], float],
        now: Callable[[], datetime],
    ) -> None:
        self._applier = applier
        self._identity = identity
        self._clock = clock
        self._now = now
        self._places = [(namespace, LEASE_NAME) for namespace in namespaces]
        self._everywhere = not namespaces
        if self._everywhere:
            self._places = [(GLOBAL_LEASE_NAMESPACE, GLOBAL_LEASE_NAME)]
        self._renewed: dict[str, float] = {}
        self._seen: dict[str, Seen] = {}
        self._failing: set[str] = set()
        self._others: dict[str, float] = {}

    async def leads(self, namespace: str) -> bool:
        """Whether this operator may work on a namespace now. Raises ApiError."""
        if not self._everywhere:
            return self._holds(namespace)
        return self._holds(GLOBAL_LEASE_NAMESPACE) and not await self._is_of_another(namespace)

    def held(self) -> int:
        """Leases that are held now."""
        return sum(self._holds(namespace) for namespace, _ in self._places)

    async def run(self) -> NoReturn:
        """Acquires and renews until cancelled."""
        while True:
            await self.attempt()
            await asyncio.sleep(RETRY_SECONDS)

    async def attempt(self) -> None:
        """Tries once to acquire or to renew each Lease."""
        await asyncio.gather(*(self._attempt(*place) for place in self._places))

    async def release(self) -> None:
        """Gives up what is held, so that a successor need not wait."""
        for namespace, name in self._places:
            # Also one that could not be renewed in time, unless another has it by now.
            if self._renewed.pop(namespace, None) is None:
                continue
            try:
                live = await self._applier.get(LEASE, namespace, name)
                if live["spec"].get("holderIdentity") == self._identity:
                    await self._applier.replace(LEASE, {**live, "spec": {**live["spec"], "holderIdentity": ""}})
            except ApiError as error:
                log.warning("lease %s/%s was not released: %s", namespace, name, error)

    async def _attempt(self, namespace: str, name: str) -> None:
        held_before = self._holds(namespace)
        started = self._clock()
        try:
            if await self._acquire(namespace, name):
                # From before the request: another may count from the moment at which it was served.
                self._renewed[namespace] = started
            self._failing.discard(namespace)
        except Conflict:
            # Another was faster.
            self._failing.discard(namespace)
        except ApiError as error:
            # Once, not with each attempt.
            level = logging.DEBUG if namespace in self._failing else logging.WARNING
            log.log(level, "lease %s/%s can neither be acquired nor renewed: %s", namespace, name, error)
            self._failing.add(namespace)
        if self._holds(namespace) != held_before:
            verb = "lost" if held_before else "acquired"
            log.log(logging.WARNING if held_before else logging.INFO, "lease %s/%s %s", namespace, name, verb)

    async def _acquire(self, namespace: str, name: str) -> bool:
        try:
            live = await self._applier.get(LEASE, namespace, name)
        except NotFound:
            await self._applier.create(LEASE, self._lease(namespace, name, {}))
            return True
        if not self._is_free(namespace, live):
            return False
        # The version of what was read: of several that try, one succeeds.
        version = live["metadata"]["resourceVersion"]
        await self._applier.replace(LEASE, self._lease(namespace, name, live.get("spec", {}), version))
        return True

    def _is_free(self, namespace: str, live: Object) -> bool:
        spec = live.get("spec", {})
        if spec.get("holderIdentity") in (None, "", self._identity):
            return True
        version = live["metadata"]["resourceVersion"]
        seen = self._seen.get(namespace)
        if seen is None or seen.version != version:
            self._seen[namespace] = Seen(version, self._clock())
            return False
        return self._clock() - seen.at > float(spec.get("leaseDurationSeconds", DURATION_SECONDS))

    def _lease(self, namespace: str, name: str, before: Object, version: str | None = None) -> dict[str, Any]:
        now = self._now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        ours = before.get("holderIdentity") == self._identity
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": DURATION_SECONDS,
            "acquireTime": before["acquireTime"] if ours else now,
            "renewTime": now,
            "leaseTransitions": before.get("leaseTransitions", 0) + (bool(before) and not ours),
        }
        metadata = {"name": name, "namespace": namespace, **({"resourceVersion": version} if version else {})}
        return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": spec}

    def _holds(self, namespace: str) -> bool:
        renewed = self._renewed.get(namespace)
        return renewed is not None and self._clock() - renewed < RENEW_WITHIN_SECONDS

    async def _is_of_another(self, namespace: str) -> bool:
        # Only this answer is kept. A namespace that was free may be somebody's by now, who works there at once.
        asked = self._others.get(namespace)
        if asked is not None and self._clock() - asked <= _ASKED_SECONDS:
            return True
        held = await self._ask(namespace)
        if held:
            self._others[namespace] = self._clock()
        return held

    async def _ask(self, namespace: str) -> bool:
        try:
            spec = (await self._applier.get(LEASE, namespace, LEASE_NAME)).get("spec", {})
        except NotFound:
            return False
        if not spec.get("holderIdentity") or not spec.get("renewTime"):
            return False
        # Times of day of two machines are compared here: a minute of difference is taken for the same.
        silent = self._now() - datetime.fromisoformat(spec["renewTime"])
        return silent < timedelta(seconds=DURATION_SECONDS + 60)
