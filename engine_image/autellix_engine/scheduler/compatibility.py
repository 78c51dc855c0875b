"""Which vLLM the scheduler class fits. It builds on private parts that change from version to version."""

from typing import Final

SUPPORTED: Final = "0.32.0"


class UnsupportedVllm(RuntimeError):
    """Another version of vLLM than the scheduler class was written for."""


def check_version(version: str) -> None:
    """Raises UnsupportedVllm unless ``version``, less a local part such as ``+cpu``, is the supported one."""
    if version.partition("+")[0] != SUPPORTED:
        raise UnsupportedVllm(
            f"This scheduler supports vLLM {SUPPORTED} only, and this is vLLM {version}: "
            "install that version, or run the engine without --scheduler-cls."
        )
