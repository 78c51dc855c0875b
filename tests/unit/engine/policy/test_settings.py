import json

import pytest

from autellix_engine.policy import POLICIES, InvalidSettings, SchedulingSettings
from autellix_engine.policy.levels import level_source


def test_defaults_are_eight_levels_as_wide_as_their_quanta_that_follow_the_programs() -> None:
    settings = SchedulingSettings.parse("{}")
    assert settings.model_dump()["queue_bounds_ms"] == "auto"
    levels = level_source(settings, POLICIES[settings.policy]).now
    assert list(levels.bounds) == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000]
    assert list(levels.quanta) == [1_000, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, float("inf")]
    assert settings.policy == "plas"
    assert settings.starvation_ratio >= 4
    assert settings.steps_per_decision == 1


def test_every_registered_policy_can_be_chosen_and_no_other() -> None:
    for name in POLICIES:
        assert SchedulingSettings.parse({"policy": name}).policy == name
    with pytest.raises(InvalidSettings) as error:
        SchedulingSettings.parse({"policy": "sjf"})
    assert all(name in str(error.value) for name in POLICIES)


def test_settings_survive_the_way_through_json() -> None:
    settings = SchedulingSettings.parse({"policy": "atlas", "queue_bounds_ms": [5, 10.5], "quanta_ms": [1, 2]})
    assert SchedulingSettings.parse(settings.model_dump_json()) == settings
    assert SchedulingSettings.parse(settings.model_dump(mode="json")) == settings


@pytest.mark.parametrize(
    ("given", "named", "allowed"),
    [
        ({"quantum": 3}, "scheduling.quantum", "quanta_ms"),
        ({"queue_bounds_ms": [1, 3, 2]}, "scheduling.queue_bounds_ms", "ascend"),
        ({"queue_bounds_ms": [1, 1]}, "scheduling.queue_bounds_ms", "ascend"),
        ({"queue_bounds_ms": [0, 1]}, "scheduling.queue_bounds_ms.0", "greater than 0"),
        ({"queue_bounds_ms": list(range(1, 65))}, "scheduling.queue_bounds_ms", "at most 63"),
        ({"queue_bounds_ms": 3}, "scheduling.queue_bounds_ms", "array"),
        ({"queue_bounds_ms": "automatic"}, "scheduling.queue_bounds_ms", "'auto'"),
        ({"queue_bounds_ms": [1, 2, 3], "quanta_ms": [1, 2]}, "quanta_ms", "one for each of the 3 bounds"),
        ({"queue_bounds_ms": "auto", "quanta_ms": [1, 2]}, "quanta_ms", "only with queue_bounds_ms"),
        ({"queue_bounds_ms": [1, 2], "quanta_ms": [1, -7]}, "scheduling.quanta_ms.1", "greater than 0"),
        ({"starvation_ratio": 0}, "scheduling.starvation_ratio", "greater than 0"),
        ({"starvation_ratio": "4"}, "scheduling.starvation_ratio", "number"),
        ({"starvation_ratio": True}, "scheduling.starvation_ratio", "number"),
        ({"starvation_floor_ms": 0}, "scheduling.starvation_floor_ms", "greater than 0"),
        ({"steps_per_decision": 0}, "scheduling.steps_per_decision", "greater than or equal to 1"),
        ({"steps_per_decision": 1.5}, "scheduling.steps_per_decision", "integer"),
        ({"spare_calls": -1}, "scheduling.spare_calls", "greater than or equal to 0"),
        ({"max_preemptions_per_step": -1}, "scheduling.max_preemptions_per_step", "greater than or equal to 0"),
        ({"min_run_ms": -1}, "scheduling.min_run_ms", "greater than or equal to 0"),
        ({"program_idle_seconds": 0}, "scheduling.program_idle_seconds", "greater than 0"),
        ({"max_programs": 0}, "scheduling.max_programs", "greater than or equal to 1"),
    ],
)
def test_a_wrong_setting_is_refused_in_one_line_that_names_it(
    given: dict[str, object], named: str, allowed: str
) -> None:
    with pytest.raises(InvalidSettings) as error:
        SchedulingSettings.parse(given)
    message = str(error.value)
    assert named in message
    assert allowed in message
    assert "\n" not in message


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(number: str) -> None:
    with pytest.raises(InvalidSettings, match="starvation_ratio"):
        SchedulingSettings.parse(f'{{"starvation_ratio": {number}}}')


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"plas"'])
def test_anything_but_a_json_object_is_refused(text: str) -> None:
    with pytest.raises(InvalidSettings, match="scheduling"):
        SchedulingSettings.parse(text)


def test_every_wrong_field_is_named_at_once() -> None:
    with pytest.raises(InvalidSettings) as error:
        SchedulingSettings.parse(json.dumps({"policy": "x", "min_run_ms": -1}))
    assert "scheduling.policy" in str(error.value)
    assert "scheduling.min_run_ms" in str(error.value)
