"""The admission queue as a pure core: properties over random arrivals, ends and departures."""

from collections import Counter
from collections.abc import Hashable

from hypothesis import given, settings
from hypothesis import strategies as st

from autellix_controller.gateway.admission import AdmissionQueue, Waiting

TENANTS = ["a", "b", "c"]
LANES = ["m1", "m2"]
ROOM = {"m1": 3, "m2": 2}
BOUNDS = {"a": 2, "b": None, "c": 4}
LIMIT = 6


class Model:
    """A queue with engines around it: two models, each on an engine of its own."""

    def __init__(self) -> None:
        self.queue = AdmissionQueue(LIMIT)
        self.waiting: dict[int, Waiting] = {}
        self.running: dict[int, Waiting] = {}
        self.refused: list[Waiting] = []
        self.number = 0

    def has_room(self, lane: Hashable) -> bool:
        return sum(call.lane == lane for call in self.running.values()) < ROOM[str(lane)]

    def count(self, tenant: str) -> int:
        return sum(call.tenant == tenant for call in self.running.values())

    def may_start(self, call: Waiting) -> bool:
        bound = BOUNDS[call.tenant]
        return self.has_room(call.lane) and (bound is None or self.count(call.tenant) < bound)

    def arrive(self, tenant: str, lane: str, service_ms: float) -> None:
        self.number += 1
        call = Waiting(self.number, tenant, lane, service_ms)
        before = Counter(waiting.tenant for waiting in self.waiting.values())
        displaced = self.queue.add(call)
        self.waiting[call.key] = call
        if displaced is not None:
            assert sum(before.values()) == LIMIT, "nobody has to go while there is room"
            del self.waiting[displaced.key]
            self.refused.append(displaced)
            if displaced.tenant == tenant:
                own = [waiting for waiting in (*self.waiting.values(), displaced) if waiting.tenant == tenant]
                assert max(own, key=lambda one: (one.service_ms, one.key)) == displaced
            else:
                assert before[displaced.tenant] > before[tenant] + 1
                assert before[displaced.tenant] == max(before.values())
        self.start_all()

    def start_all(self) -> None:
        while (call := self.queue.next(has_room=self.has_room, bound=BOUNDS.__getitem__)) is not None:
            able = [one for one in self.waiting.values() if self.may_start(one)]
            assert call in able
            assert self.count(call.tenant) == min(self.count(one.tenant) for one in able), "fewest running first"
            own = [one for one in able if one.tenant == call.tenant]
            assert call == min(own, key=lambda one: (one.service_ms, one.key)), "least service first"
            self.running[call.key] = self.waiting.pop(call.key)
        assert not any(self.may_start(one) for one in self.waiting.values()), "no place stays empty"

    def check(self) -> None:
        assert len(self.queue) == len(self.waiting) <= LIMIT
        for tenant in TENANTS:
            assert self.queue.running(tenant) == self.count(tenant)
            assert self.queue.waiting(tenant) == sum(one.tenant == tenant for one in self.waiting.values())


# More calls come than end: what is looked for happens while many wait.
ARRIVAL = st.tuples(st.just("arrive"), st.sampled_from(TENANTS), st.sampled_from(LANES), st.integers(0, 3))
END = st.tuples(st.just("end"), st.integers(0, 100))
LEAVE = st.tuples(st.just("leave"), st.integers(0, 100))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(ARRIVAL, ARRIVAL, END, END, LEAVE), min_size=60, max_size=120))
def test_the_rules_hold_whatever_comes_and_goes(steps: list[tuple[object, ...]]) -> None:
    model = Model()
    for step in steps:
        match step:
            case ("arrive", str(tenant), str(lane), int(service)):
                model.arrive(tenant, lane, float(service))
            case ("end", int(n)) if model.running:
                call = model.running.pop(sorted(model.running)[n % len(model.running)])
                model.queue.ended(call.tenant)
                model.start_all()
            case ("leave", int(n)) if model.waiting:
                key = sorted(model.waiting)[n % len(model.waiting)]
                del model.waiting[key]
                model.queue.remove(key)
                model.start_all()
        model.check()
    for call in list(model.running.values()):
        model.queue.ended(call.tenant)
    for key in model.waiting:
        model.queue.remove(key)
    model.queue.remove(-1)
    assert len(model.queue) == 0
    assert all(model.queue.running(tenant) == model.queue.waiting(tenant) == 0 for tenant in TENANTS)


def test_tenants_that_always_have_calls_waiting_take_turns() -> None:
    queue, keys = AdmissionQueue(100), iter(range(1000))

    def add(tenant: str, service_ms: float) -> None:
        assert queue.add(Waiting(next(keys), tenant, "m", service_ms)) is None

    for _ in range(20):
        add("many", 0.0)
    for _ in range(5):
        add("few", 1e6)
    order = []
    for _ in range(10):  # one place
        call = queue.next(has_room=lambda lane: True, bound=lambda tenant: None)
        assert call is not None
        order.append(call.tenant)
        queue.ended(call.tenant)
    assert Counter(order) == {"many": 5, "few": 5}


def test_a_queue_without_places_refuses_everybody() -> None:
    queue = AdmissionQueue(0)
    call = Waiting(1, "a", "m", 0.0)
    assert queue.add(call) is call
    assert len(queue) == 0


def test_a_tenant_displaces_another_only_if_that_one_still_has_as_many_afterwards() -> None:
    queue = AdmissionQueue(5)
    for key, tenant in enumerate(["a", "a", "a", "b", "b"]):
        assert queue.add(Waiting(key, tenant, "m", float(key))) is None
    refused = queue.add(Waiting(10, "b", "m", 0.0))
    assert refused is not None
    assert (refused.tenant, refused.key) == ("b", 4), "two calls displace none of three"
    refused = queue.add(Waiting(11, "c", "m", 9.0))
    assert refused is not None
    assert (refused.tenant, refused.key) == ("a", 2)
