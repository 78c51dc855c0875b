"""What holds of every policy, and of each alone."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix_controller.routing.decide import ROUTE_REASONS, EngineView, NoEngine, Rules, Snapshot
from autellix_controller.routing.policies import POLICIES, Policy, prefix_of
from autellix_controller.settings import Settings

NAMES = ["a", "b", "c", "d"]

rules = st.builds(Rules, spill_ratio=st.floats(1, 5), spill_calls=st.integers(1, 20))
snapshots = st.builds(
    Snapshot,
    program=st.text(min_size=1, max_size=8),
    engines=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 100), min_size=1).map(
        lambda used: tuple(EngineView(name, count) for name, count in used.items())
    ),
    pin=st.none() | st.sampled_from(NAMES),
    short=st.booleans(),
    prefix=st.integers(0, 2**64 - 1),
    turn=st.integers(0, 10**9),
    tried=st.frozensets(st.sampled_from(NAMES), max_size=2),
)


def views(**used: int) -> tuple[EngineView, ...]:
    return tuple(EngineView(name, count) for name, count in used.items())


every_policy = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


def test_settings_offer_every_policy() -> None:
    for name in POLICIES:
        assert Settings(engine=("http://a:1",), routing_policy=name).routing_policy == name


@every_policy
@given(snapshot=snapshots, rule=rules)
def test_a_decision_names_an_engine_that_was_offered_and_not_tried(
    policy: Policy, snapshot: Snapshot, rule: Rules
) -> None:
    offered = {view.name for view in snapshot.engines} - snapshot.tried
    if not offered:
        with pytest.raises(NoEngine):
            policy(snapshot, rule)
        return
    decision = policy(snapshot, rule)
    assert decision.engine in offered
    assert decision.reason in ROUTE_REASONS
    assert policy(snapshot, rule) == decision, "a decision depends on nothing else"


@every_policy
@given(snapshot=snapshots, rule=rules, order=st.permutations(NAMES))
def test_the_order_of_the_engines_does_not_matter(
    policy: Policy, snapshot: Snapshot, rule: Rules, order: list[str]
) -> None:
    if {view.name for view in snapshot.engines} <= snapshot.tried:
        return
    shuffled = tuple(sorted(snapshot.engines, key=lambda view: order.index(view.name)))
    again = Snapshot(**{**{name: getattr(snapshot, name) for name in Snapshot.__struct_fields__}, "engines": shuffled})
    assert policy(again, rule) == policy(snapshot, rule)


@given(snapshot=snapshots, rule=rules)
def test_only_autellix_moves_pins(snapshot: Snapshot, rule: Rules) -> None:
    for name, policy in POLICIES.items():
        if name != "autellix" and not {view.name for view in snapshot.engines} <= snapshot.tried:
            assert not policy(snapshot, rule).move_pin


def test_round_robin_takes_turns() -> None:
    chosen = [POLICIES["round_robin"](Snapshot("p", views(b=9, a=0, c=4), turn=n), Rules()).engine for n in range(6)]
    assert chosen == ["a", "b", "c", "a", "b", "c"]


def test_least_used_takes_the_least_used() -> None:
    decision = POLICIES["least_used"](Snapshot("p", views(a=3, b=1, c=2), pin="a"), Rules())
    assert (decision.engine, decision.reason) == ("b", "least_used")


def test_prompts_that_begin_alike_meet_on_one_engine_and_others_spread() -> None:
    system = b"You are a helpful agent. " * 50
    alike = {prefix_of("m", system + b"%d" % number) for number in range(20)}
    assert len(alike) == 1
    assert prefix_of("other", system) not in alike
    idle = views(a=0, b=0, c=0, d=0)
    chosen = Counter(
        POLICIES["prefix_hash"](Snapshot("p", idle, prefix=prefix_of("m", b"%d" % number)), Rules()).engine
        for number in range(400)
    )
    assert all(60 < chosen[name] < 140 for name in NAMES)


def test_an_engine_that_leaves_moves_only_the_prefixes_that_it_had() -> None:
    prefixes = [prefix_of("m", b"%d" % number) for number in range(200)]

    def placed(engines: tuple[EngineView, ...]) -> dict[int, str]:
        return {n: POLICIES["prefix_hash"](Snapshot("p", engines, prefix=n), Rules()).engine for n in prefixes}

    before, after = placed(views(a=0, b=0, c=0, d=0)), placed(views(a=0, b=0, c=0))
    assert all(after[prefix] == engine for prefix, engine in before.items() if engine != "d")


@given(st.lists(st.integers(0, 50), min_size=2, max_size=4), st.integers(0, 2**64 - 1))
def test_a_popular_prefix_does_not_crowd_an_engine(used: list[int], prefix: int) -> None:
    engines = tuple(EngineView(NAMES[n], count) for n, count in enumerate(used))
    chosen = POLICIES["prefix_hash"](Snapshot("p", engines, prefix=prefix), Rules()).engine
    assert used[NAMES.index(chosen)] <= 1.25 * (sum(used) + 1) / len(used)
