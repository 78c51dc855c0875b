"""Which engines controllers give calls to, looked at beside a change: how few there were, and when each one left."""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
from prometheus_client.parser import text_string_to_metric_families

from support.tasks import end

_METRIC = "autellix_controller_engine_available"
_LOOK_SECONDS = 0.2


@dataclass(kw_only=True)
class RoutableEngines:
    """What the looks so far have shown. Times are those of ``time.monotonic``."""

    looks: int = 0
    fewest: int = 1 << 30
    """Engines that a controller would give a call to, at the worst moment of the worst controller."""
    _seen: dict[str, dict[str, float]] = field(default_factory=dict)

    def look(self, controller: str, began: float, page: str) -> None:
        """Takes in the metrics of a controller that was asked at ``began``."""
        # The page is long, and it is read five times a second beside all that is measured.
        lines = "\n".join(line for line in page.splitlines() if line.startswith(_METRIC))
        samples = (sample for family in text_string_to_metric_families(lines) for sample in family.samples)
        available = {sample.labels["engine"] for sample in samples if sample.value == 1}
        self.looks += 1
        self.fewest = min(self.fewest, len(available))
        self._seen.setdefault(controller, {}).update(dict.fromkeys(available, began))

    def served_until(self, staying: Collection[str]) -> Mapping[str, float]:
        """Of each engine besides those: when every controller that knew it was last seen to give it calls."""
        gone = {name for seen in self._seen.values() for name in seen} - set(staying)
        return {name: min(seen[name] for seen in self._seen.values() if name in seen) for name in gone}


@asynccontextmanager
async def watched_engines(controllers: Sequence[str]) -> AsyncIterator[RoutableEngines]:
    """Looks for as long as the context lasts. ``controllers`` are base URLs; a late answer is a look less."""
    found = RoutableEngines()

    async def follow(client: httpx.AsyncClient, controller: str) -> None:
        while True:
            began = time.monotonic()
            try:
                page = (await client.get(f"{controller}/metrics")).raise_for_status().text
            except httpx.TimeoutException:
                continue
            found.look(controller, began, page)
            await asyncio.sleep(_LOOK_SECONDS)

    async with httpx.AsyncClient(timeout=5) as client:
        tasks = [asyncio.create_task(follow(client, each)) for each in controllers]
        try:
            yield found
        finally:
            await end(tasks)
