"""All engines: keeps their list at what discovery says, probes them, and follows their records."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from autellix_controller.background import Backoff, cancel, forever
from autellix_controller.engines.accounting import Accounting
from autellix_controller.engines.client import EngineClient, ProbeFailed, ProbeImpossible, ProbeSlow
from autellix_controller.engines.discovery import Discovery
from autellix_controller.engines.engine import Endpoint, Engine
from autellix_controller.engines.follower import Follower
from autellix_controller.engines.health import Seen
from autellix_controller.logs import fields
from autellix_controller.routing.decide import EngineView
from autellix_wire.records import CallRecord, Gap, LoadReport

log = logging.getLogger(__name__)

#: How often an engine out of rotation is probed, and how often records of dead replicas are looked for.
_RECOVERY_SECONDS: Final = 1.0
_ADOPT_SECONDS: Final = 1.0
#: Ends of programs that engines are being told of at once; more are left to the engines' own tidying.
_MOST_TOLD: Final = 1024


class _Sink:
    """Passes what one engine says to where it belongs."""

    def __init__(self, engine: Engine, accounting: Accounting, fleet: "Fleet") -> None:
        self._engine, self._accounting, self._fleet = engine, accounting, fleet

    def record(self, record: CallRecord) -> None:
        self._accounting.record(record, now=time.monotonic(), now_ms=time.time_ns() // 1_000_000)

    def load(self, report: LoadReport) -> None:
        self._engine.reported(report, time.monotonic())

    def gap(self, gap: Gap) -> None:
        self._fleet.records_lost += max(0, gap.last - gap.first + 1)

    def cut(self) -> None:
        self._fleet.hurry(self._engine)


class Fleet:
    """The engines of this controller. All of it runs on one event loop."""

    def __init__(
        self,
        discovery: Discovery,
        accounting: Accounting,
        client: Callable[[str], EngineClient],
        *,
        probe_seconds: float,
        rng: random.Random | None = None,
    ) -> None:
        """``client`` makes a client for an engine's URL; ``rng`` spreads the probes."""
        self._rng = rng or random.Random()
        self._discovery, self._accounting, self._client = discovery, accounting, client
        self._probe_seconds = probe_seconds
        self._engines: dict[str, Engine] = {}
        self._watchers: dict[str, tuple[asyncio.Task[None], ...]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._telling: set[asyncio.Task[None]] = set()
        self._wake: dict[str, asyncio.Event] = {}
        self.listed = False
        """Discovery has said at least once which engines there are."""
        self.known = False
        """Every engine of a list was probed: the replica may get traffic. It stays so: an engine that is found later is
        no reason to turn away what the others can serve."""
        self.records_lost = 0
        """Call records that engines could not deliver any more, since the start."""

    async def start(self) -> None:
        """Begins to discover and watch engines in the background."""
        self._tasks = [
            asyncio.create_task(forever("discovery", lambda: self._discovery.run(self.replace))),
            asyncio.create_task(forever("adoption of records", self._adopt)),
        ]

    async def stop(self) -> None:
        """Ends all background work."""
        watchers = [task for tasks in self._watchers.values() for task in tasks]
        await cancel(*self._tasks, *watchers, *self._telling)
        self._watchers.clear()

    def replace(self, endpoints: Sequence[Endpoint]) -> None:
        """Makes the list of engines what ``endpoints`` says. One that moved to another address starts afresh."""
        wanted = {endpoint.name: endpoint for endpoint in endpoints}
        for name, engine in list(self._engines.items()):
            if name not in wanted or wanted[name].url != engine.endpoint.url:
                self._remove(name)
        for name, endpoint in wanted.items():
            if name in self._engines:
                self._engines[name].endpoint = endpoint
            else:
                self._add(Engine(endpoint))
        self.listed = True
        self._see_whether_known()

    def _see_whether_known(self) -> None:
        self.known = self.known or (self.listed and all(engine.probed for engine in self._engines.values()))

    def _add(self, engine: Engine) -> None:
        client = self._client(engine.endpoint.url)
        follower = Follower(engine.name, client, _Sink(engine, self._accounting, self), Backoff(0.1, 5.0))
        self._engines[engine.name] = engine
        self._wake[engine.name] = asyncio.Event()
        self._watchers[engine.name] = (
            asyncio.create_task(forever("probe", lambda: self._probe(engine, client))),
            asyncio.create_task(forever("record stream", follower.run)),
        )
        log.info("engine found", extra=fields(engine=engine.name, url=engine.endpoint.url))

    def _remove(self, name: str) -> None:
        del self._engines[name], self._wake[name]
        for task in self._watchers.pop(name):
            task.cancel()
        log.info("engine gone", extra=fields(engine=name))

    async def _probe(self, engine: Engine, client: EngineClient) -> None:
        """Probes one engine for ever, oftener while it is out of rotation."""
        wake = self._wake[engine.name]
        while True:
            wake.clear()
            try:
                engine.models = await client.models()
                if (scheduling := await client.scheduling()) is not None:
                    engine.scheduling = scheduling
                engine.saw(Seen.PROBED)
            except ProbeImpossible as error:
                # Whatever was known of it stays.
                log.warning("engine not probed", extra=fields(engine=engine.name, reason=str(error)))
            except ProbeSlow as error:
                # One slow answer is no proof: an engine under load may take its time.
                engine.saw(Seen.FAILED, str(error))
            except ProbeFailed as error:
                engine.saw(Seen.UNREACHABLE, str(error))
            engine.probed = True
            self._see_whether_known()
            pause = (self._probe_seconds if engine.health.well else _RECOVERY_SECONDS) * self._rng.uniform(0.8, 1.2)
            try:
                await asyncio.wait_for(wake.wait(), pause)
                await asyncio.sleep(_RECOVERY_SECONDS / 2)  # it has just failed: give it a moment
            except TimeoutError:
                pass

    async def _adopt(self) -> None:
        while True:
            self._accounting.adopt(now=time.monotonic(), now_ms=time.time_ns() // 1_000_000)
            await asyncio.sleep(_ADOPT_SECONDS)

    def saw(self, engine: Engine, seen: Seen, trouble: str = "") -> None:
        """Takes in what a call met, and hurries the next probe if the engine left rotation by it."""
        engine.saw(seen, trouble)
        if not engine.health.well:
            self.hurry(engine)

    def hurry(self, engine: Engine) -> None:
        """Probes an engine soon: there is a reason to doubt that it is well."""
        if engine.name in self._wake:
            self._wake[engine.name].set()

    def __iter__(self) -> Iterator[Engine]:
        return iter(self._engines.values())

    def get(self, name: str) -> Engine | None:
        """The engine of that name, if discovery lists it."""
        return self._engines.get(name)

    def views(self, model: str | None, now: float) -> tuple[EngineView, ...]:
        """Engines that may take a call for the model now.

        Outliers are left out unless nothing else is left: a guess is better than no answer. So are engines that drain,
        unless others are there to take over and cannot yet: a replaced engine may leave the moment its successor is
        listed, which we still have to probe, and while it drains it serves as well as before.
        """
        return tuple(
            [EngineView(engine.name, engine.used(now), engine.endpoint.outdated) for engine in self._able(model)]
        )

    def serves(self, model: str | None) -> bool:
        """Whether any engine may take a call for the model now."""
        for engine in self._engines.values():
            if engine.available and engine.serves(model):
                return True  # the usual case, which every call passes
        return bool(self._able(model))

    def _able(self, model: str | None) -> list[Engine]:
        reachable = [engine for engine in self._engines.values() if engine.health.reachable and engine.serves(model)]
        able = [engine for engine in reachable if engine.endpoint.accepts]
        well = [engine for engine in able if engine.health.well]
        taken_over = any(engine.endpoint.accepts for engine in self._engines.values())
        return well or able or (reachable if taken_over else [])

    def lacks(self, model: str | None) -> bool:
        """Whether engines, in rotation or not, have told their models and this is none of them. Without an engine that
        has told any, no model is lacking: those of engines that are gone are not remembered."""
        told = False
        for engine in self._engines.values():
            if engine.serves(model):
                return False
            told = told or bool(engine.models)
        return told

    def models(self) -> list[dict[str, Any]]:
        """The models of all engines, each once, sorted by id."""
        found = {str(entry.get("id")): entry for engine in self._engines.values() for entry in engine.models}
        return [found[name] for name in sorted(found)]

    def troubles(self) -> list[str]:
        """Why engines get no calls, one line each."""
        return [f"engine {engine.name}: {engine.trouble}" for engine in self._engines.values() if engine.trouble]

    def end_program(self, engine_program: str) -> None:
        """Has every engine that keeps programs told to forget one, in the background: whoever ended it must not wait
        for an engine that hangs. One that cannot be told forgets the program when it is idle."""
        if len(self._telling) >= _MOST_TOLD:
            log.warning(
                "engines are not told of a program's end, they are behind", extra=fields(program=engine_program)
            )
            return
        telling = asyncio.create_task(self._tell_of_end(engine_program))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)

    async def _tell_of_end(self, engine_program: str) -> None:
        clients = [self._client(engine.endpoint.url) for engine in self._engines.values() if engine.has_records]
        told = await asyncio.gather(*(client.end_program(engine_program) for client in clients))
        if not all(told):
            log.info("not every engine could be told of a program's end", extra=fields(program=engine_program))
