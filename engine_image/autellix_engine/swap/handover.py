"""What the launcher hands over to vLLM so that it loads our connector, and how our parts read it back."""

from collections.abc import Mapping
from typing import Final

from autellix_engine.swap.settings import SwapSettings

CONNECTOR: Final = "SwapConnector"
CONNECTOR_MODULE: Final = "autellix_engine.swap.connector"
SPEC: Final = "SwapSpec"
SPEC_MODULE: Final = "autellix_engine.swap.spec"
_SETTINGS: Final = "autellix_swap"


def transfer_config(settings: SwapSettings) -> dict[str, object]:
    """vLLM's ``--kv-transfer-config``. The settings' size is in bytes by now."""
    return {
        "kv_connector": CONNECTOR,
        "kv_connector_module_path": CONNECTOR_MODULE,
        "kv_role": "kv_both",
        # vLLM's own default ends the call.
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {
            "spec_name": SPEC,
            "spec_module_path": SPEC_MODULE,
            # What a call generates is the next call's context.
            "offload_prompt_only": False,
            _SETTINGS: settings.model_dump(mode="json"),
        },
    }


def swap_settings(extra_config: Mapping[str, object]) -> SwapSettings:
    """The settings in ``kv_connector_extra_config``. Raises InvalidSwapSettings."""
    given = extra_config.get(_SETTINGS, {})
    return SwapSettings.parse(given if isinstance(given, str | Mapping) else {_SETTINGS: given})
