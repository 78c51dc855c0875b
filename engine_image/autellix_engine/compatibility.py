"""Which vLLM the engine fits: the scheduler builds on private parts that change from version to version."""

from typing import Final

SUPPORTED_VLLM: Final = "0.32.0"


class UnsupportedVllm(RuntimeError):
    """Another version of vLLM than the scheduler class was written for."""


def is_supported(version: str) -> bool:
    """Whether ``version``, less a local part such as ``+cpu``, is the supported one."""
    return version.partition("+")[0] == SUPPORTED_VLLM


def check_version(version: str) -> None:
    """Raises UnsupportedVllm unless ``version`` is supported."""
    if not is_supported(version):
        raise UnsupportedVllm(
            f"This scheduler supports vLLM {SUPPORTED_VLLM} only, and this is vLLM {version}: "
            "install that version, or run the engine without --scheduler-cls."
        )
