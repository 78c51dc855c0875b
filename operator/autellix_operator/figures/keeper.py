"""Keeps the figures of a cluster current: in its status, and as deletion costs on the pods of its engines.

With the cost set, a scale-down takes the engines with the fewest live programs. What controllers say of the process
table goes into the status too, where the reconciler judges it. All of it is best effort: a pod that
does not answer is left out, and nothing here keeps a cluster from being reconciled. The fields are applied under a
field manager of their own, so that neither writer touches the other's.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from autellix_operator.api.names import COMPONENT_LABEL, Cluster, Component, Key
from autellix_operator.api.spec import GROUP, KIND, VERSION
from autellix_operator.desired import controller, engine
from autellix_operator.figures.parse import ControllerFigures, Unreadable, controller_figures, worst_wait_percent
from autellix_operator.figures.scrape import Scraper
from autellix_operator.figures.table import TableState, summary, table_state, witnesses
from autellix_operator.keys.engine import used_first
from autellix_operator.kube.applier import AUTELLIX_CLUSTER, POD, SECRET, Applier, Conflict, NotFound, Object, Refused
from autellix_operator.pods import is_ready

FIGURES_MANAGER: Final = "autellix-operator-figures"
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
#: So many controllers are asked in turn until one answers: each knows all programs.
_CONTROLLERS_ASKED: Final = 2
#: So many say whether they reach the process table: more would not tell more.
_WITNESSES: Final = 16


class FiguresKeeper:
    """Reads and writes figures. ``applier`` must have the field manager FIGURES_MANAGER. Keeps nothing in between."""

    def __init__(self, applier: Applier, scraper: Scraper, now: Callable[[], datetime]) -> None:
        self._applier = applier
        self._scraper = scraper
        self._now = now

    async def refresh(self, key: Key) -> bool:
        """Brings status and costs up to date, writing only what changed; gives whether the cluster is still there.
        Raises ApiError."""
        try:
            resource = await self._applier.get(AUTELLIX_CLUSTER, key.namespace, key.name)
        except NotFound:
            return False
        if "deletionTimestamp" in resource["metadata"] or "conditions" not in resource.get("status", {}):
            return True
        cluster = Cluster.of(resource)
        pods = await self._applier.list(POD, cluster.namespace, cluster.selector_of_all())
        found = await self._controllers([pod for pod in pods if _component(pod) == Component.CONTROLLER])
        engines = [pod for pod in pods if _component(pod) == Component.ENGINE]
        refused = None if found is None else await self._write_costs(engines, found)
        programs = await self._programs(cluster, engines, found)
        await self._write_status(resource, {"programs": programs, "processTable": await self._table(resource, pods)})
        if refused is not None:
            raise refused
        return True

    async def _table(self, resource: Object, pods: Sequence[Object]) -> dict[str, Any]:
        """What controllers say of the process table; empty if none of those that could tell answers."""
        external = bool(resource["spec"].get("processTable", {}).get("etcd", {}).get("endpoints"))
        asked = witnesses(pods, self._now(), external=external)[:_WITNESSES]
        answers = await asyncio.gather(*map(self._table_state, asked))
        return summary(answer for answer in answers if answer is not None)

    async def _table_state(self, pod: Object) -> TableState | None:
        answer = await self._scraper.readiness(pod["status"]["podIP"], controller.PORT)
        try:
            return None if answer is None else table_state(answer)
        except Unreadable:
            return None

    async def _controllers(self, pods: Sequence[Object]) -> ControllerFigures | None:
        for pod in sorted(filter(_ready, pods), key=_name)[:_CONTROLLERS_ASKED]:
            page = await self._scraper.page(pod["status"]["podIP"], controller.PORT)
            try:
                if page is not None:
                    return controller_figures(page)
            except Unreadable:
                continue
        return None

    async def _programs(
        self, cluster: Cluster, engines: Sequence[Object], found: ControllerFigures | None
    ) -> dict[str, Any]:
        """What is said of programs in the status; empty if no controller answers."""
        if found is None:
            return {}
        ready = [pod for pod in engines if _ready(pod)]
        keys = await self._engine_keys(cluster) if ready else []
        answers = await asyncio.gather(*(self._engine_page(pod, keys) for pod in ready))
        try:
            worst = worst_wait_percent(page for page in answers if page is not None)
        except Unreadable:
            return {"live": found.programs}
        return {"live": found.programs, "worstWaitRatioPercent": worst}

    async def _engine_keys(self, cluster: Cluster) -> list[str]:
        try:
            return used_first(await self._applier.get(SECRET, cluster.namespace, cluster.accepted_keys_secret))
        except NotFound:
            return []

    async def _engine_page(self, pod: Object, keys: Sequence[str]) -> str | None:
        for key in keys:  # one, but for the minutes in which an engine may still know a former one only
            page = await self._scraper.page(pod["status"]["podIP"], engine.PORT, key)
            if page is not None:
                return page
        return None

    async def _write_costs(self, engines: Sequence[Object], found: ControllerFigures) -> Refused | None:
        """Writes what it may; gives the first refusal. Raises other kinds of ApiError."""
        refused: Refused | None = None
        for pod in engines:
            cost = str(found.by_engine.get(_name(pod), 0))
            live = pod["metadata"].get("annotations", {}).get(DELETION_COST, "0")
            if cost == live or "deletionTimestamp" in pod["metadata"]:
                continue
            metadata = {
                "name": _name(pod),
                "namespace": pod["metadata"]["namespace"],
                # A pod that is gone meanwhile is not made by this.
                "uid": pod["metadata"]["uid"],
                "annotations": {DELETION_COST: cost},
            }
            manifest = {"apiVersion": POD.api_version, "kind": POD.kind, "metadata": metadata}
            try:
                await self._applier.apply(POD, manifest)
            except (NotFound, Conflict):
                continue  # gone since the list
            except Refused as error:
                refused = refused or error
        return refused

    async def _write_status(self, resource: Object, figures: Mapping[str, Mapping[str, Any]]) -> None:
        if all(resource["status"].get(name, {}) == figure for name, figure in figures.items()):
            return
        metadata = {name: resource["metadata"][name] for name in ("name", "namespace", "uid")}
        manifest = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "metadata": metadata,
            "status": {name: figure for name, figure in figures.items() if figure},
        }
        await self._applier.apply_status(AUTELLIX_CLUSTER, manifest)


def _component(pod: Object) -> str:
    return str(pod["metadata"]["labels"].get(COMPONENT_LABEL, ""))


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def _ready(pod: Object) -> bool:
    return bool(pod.get("status", {}).get("podIP")) and is_ready(pod)
