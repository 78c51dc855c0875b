"""Which vLLM the engine fits, and how it may be laid out: the scheduler builds on private parts of one version."""

from collections.abc import Mapping
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


class UnsupportedLayout(RuntimeError):
    """vLLM is to run in more parts than the scheduler can keep together."""


#: What must be one, as in vLLM's ``ParallelConfig``, and why.
SINGLE: Final = {
    "data_parallel_size": "each rank would have a scheduler of its own that knows nothing of the others' programs",
    "pipeline_parallel_size": "the executor's time of a step is not defined while several are under way",
    "_api_process_count": "call records are received by one process",
}


def check_layout(sizes: Mapping[str, int]) -> None:
    """Raises UnsupportedLayout unless there is one of each of ``SINGLE``. Tensor parallelism is free."""
    for name, reason in SINGLE.items():
        if sizes[name] != 1:
            words = name.strip("_").replace("_", " ")
            raise UnsupportedLayout(
                f"This scheduler supports only a {words} of 1, not {sizes[name]}: {reason}. Run more engines instead."
            )
