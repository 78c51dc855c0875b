"""What the launcher hands to vLLM is what our parts read."""

import pytest

from autellix_engine.swap.handover import swap_settings, transfer_config
from autellix_engine.swap.settings import InvalidSwapSettings, SwapSettings


def test_the_settings_come_through_vllms_configuration() -> None:
    settings = SwapSettings(size=1 << 30, prefetch_seconds=1.5, staging_slabs=4, weigh_preemptions=False)
    config = transfer_config(settings)
    assert swap_settings(config["kv_connector_extra_config"]) == settings  # type: ignore[arg-type]


def test_decode_is_stored_too_and_failures_are_recomputed() -> None:
    config = transfer_config(SwapSettings(size=1))
    assert config["kv_connector_extra_config"]["offload_prompt_only"] is False  # type: ignore[index]
    assert config["kv_load_failure_policy"] == "recompute"


def test_without_settings_there_is_no_swapping() -> None:
    assert swap_settings({}).size == 0


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidSwapSettings, match="swap"):
        swap_settings({"autellix_swap": 7})


@pytest.mark.parametrize(("limit", "size"), [(1_000, 400), (0, 0)])
def test_a_share_is_one_of_the_limit(limit: int, size: int) -> None:
    assert SwapSettings(size="40%").size_bytes(limit) == size
