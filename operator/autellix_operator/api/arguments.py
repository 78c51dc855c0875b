"""Arguments of the engine that a resource may not set."""

from typing import Final

#: Arguments of the engine that other fields of the spec or the system itself set, or that break what it relies on.
RESERVED_ARGUMENTS: Final = (
    "--model",
    "--served-model-name",
    "--revision",
    "--host",
    "--port",
    "--uds",
    "--root-path",
    "--enable-ssl-refresh",
    "--grpc",
    "--grpc-port",
    "--omni",
    "--config",
    "--headless",
    "--api-server-count",
    "-asc",
    "--enable-elastic-ep",
    "--api-key",
    "--middleware",
    "--max-model-len",
    "--max-num-seqs",
    "--tensor-parallel-size",
    "-tp",
    "--pipeline-parallel-size",
    "-pp",
    "--gpu-memory-utilization",
    "--scheduling",
    "--scheduling-policy",
    "--scheduler-cls",
    "--shutdown-timeout",
    "--additional-config",
    "--swap",
    "--kv-transfer-config",
    "--help",
    "-h",
)
#: Beginnings of such arguments: all that begin like it are meant.
RESERVED_FAMILIES: Final = ("--ssl-", "--data-parallel-", "--kv-offloading-", "-dp")


def reserved_argument(argument: str) -> str | None:
    """The reserved argument that an argument sets, however it is written: in full or abbreviated, with "_", "=" or
    "."."""
    if not argument.startswith("-"):
        return None
    flag = argument.split("=")[0].split(".")[0].replace("_", "-")
    return next(
        (reserved for reserved in RESERVED_ARGUMENTS if reserved.startswith(flag)),
        next((f"{family}*" for family in RESERVED_FAMILIES if flag.startswith(family)), None),
    )
