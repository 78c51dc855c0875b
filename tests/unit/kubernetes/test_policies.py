from collections.abc import Mapping

from onenode.layout import POD_NETWORK
from onenode.policies import QUEUE, queue_is_read, queue_rules

READ_BY_NOBODY = """\
   99   4711     0 2   128     0     0        8  1
 1100   4712     0 2   128     0     0        8  1
"""


def options(rule: list[str]) -> Mapping[str, str]:
    """The options of a rule by their names."""
    return {name.removeprefix("--"): value for name, value in zip(rule[::2], rule[1::2], strict=True)}


def test_packets_are_judged_where_the_addresses_are_those_of_the_pods() -> None:
    for rule in map(options, queue_rules()):
        # Before sources are masqueraded, which table `nat` does in the same chain; after targets were translated.
        assert (rule["table"], rule["append"]) == ("mangle", "POSTROUTING")


def test_only_what_comes_from_a_pod_or_goes_to_one_is_judged() -> None:
    judged = [rule for rule in map(options, queue_rules()) if rule["jump"] == "NFQUEUE"]
    assert {rule["queue-num"] for rule in judged} == {str(QUEUE)}
    assert [(rule.get("source"), rule.get("destination")) for rule in judged] == [
        (POD_NETWORK, None),
        (None, POD_NETWORK),
    ]


def test_packets_are_dropped_while_nobody_judges_them() -> None:
    assert not any("queue-bypass" in option for rule in queue_rules() for option in rule)


def test_the_node_and_connections_that_were_admitted_pass_before_anything_is_judged() -> None:
    jumps = [options(rule)["jump"] for rule in queue_rules()]
    assert jumps == sorted(jumps), "ACCEPT first, then NFQUEUE"
    passed = [rule for rule in map(options, queue_rules()) if rule["jump"] == "ACCEPT"]
    assert {"ctstate": "ESTABLISHED,RELATED"}.items() <= passed[0].items()
    assert {"src-type": "LOCAL"}.items() <= passed[1].items()


def test_a_queue_is_told_from_others_by_its_number() -> None:
    assert not queue_is_read("")
    assert not queue_is_read(READ_BY_NOBODY)
    assert queue_is_read(f"{READ_BY_NOBODY}  {QUEUE}  17262     0 2   128     0     0        8  1\n")
