"""The settings of KV swapping: one validated model, given to the engine as JSON."""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from autellix_kernels.settings import SwapSettings as EngineSettings

_UNITS: Final = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "k": 10**3, "M": 10**6, "G": 10**9}
_SIZE: Final = re.compile(r"^([1-9][0-9]*)(Ki|Mi|Gi|Ti|k|M|G|%)?$")
_ALLOWED: Final = 'a number of bytes, such as 8589934592 or "8Gi", or a share of the memory limit, such as "40%"'

#: Name of the setting in messages about the pool.
SIZE_SETTING: Final = "swap.size"


class InvalidSwapSettings(ValueError):
    """The settings are wrong; the message is one line that names each field and what is allowed."""


class SwapSettings(BaseModel):
    """How KV cache is kept in host memory. Those from ``staging_bytes`` on belong to the swap engine of a GPU and are
    explained in docs/swapping.md."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    size: int | str = 0
    """Host memory for the pool of one engine, shared by all its GPUs: bytes ("8Gi" is allowed too), or percent of the
    container's memory limit ("40%"). 0: no swapping."""
    bytes_per_step: Annotated[int, Field(ge=1)] = 1 << 30
    """Most bytes that one step begins to load, and most that it begins to store; a single call's load is never cut."""
    weigh_preemptions: bool = True
    """Whether a call keeps its slot where coming back is estimated to take longer than the better call would wait."""
    prefetch_seconds: Annotated[float, Field(ge=0, le=3_600, allow_inf_nan=False)] = 0.0
    """How long before a program is expected its context is brought back to the GPU. 0: never."""
    prefetch_share_percent: Annotated[int, Field(ge=1, le=100)] = 25
    """Most of the GPU's blocks that prefetched contexts take, of those that nobody uses."""
    staging_bytes: int = EngineSettings.staging_bytes
    staging_slabs: int = EngineSettings.staging_slabs
    thread_blocks: int = EngineSettings.thread_blocks
    gather_below_bytes: int = EngineSettings.gather_below_bytes
    gather_from_fragments: int = EngineSettings.gather_from_fragments

    @field_validator("size")
    @classmethod
    def _is_a_size(cls, size: int | str) -> int | str:
        if isinstance(size, int):
            if size < 0:
                raise ValueError(f"{size} is not allowed; give {_ALLOWED}")
            return size
        match = _SIZE.match(size)
        if size != "0" and (match is None or (match[2] == "%" and int(match[1]) > 90)):
            raise ValueError(f"{size!r} is not allowed; give {_ALLOWED}, at most 90%")
        return size

    def engine_settings(self) -> EngineSettings:
        """Those of the swap engine. Raises SettingError."""
        return EngineSettings(
            staging_bytes=self.staging_bytes,
            staging_slabs=self.staging_slabs,
            thread_blocks=self.thread_blocks,
            gather_below_bytes=self.gather_below_bytes,
            gather_from_fragments=self.gather_from_fragments,
        )

    def size_bytes(self, memory_limit: int) -> int:
        """The size in bytes, for a container that may use ``memory_limit`` bytes."""
        if isinstance(self.size, int):
            return self.size
        match = _SIZE.match(self.size)
        if match is None:
            return 0
        number, unit = int(match[1]), match[2] or ""
        return memory_limit * number // 100 if unit == "%" else number * _UNITS[unit]

    @classmethod
    def parse(cls, value: str | Mapping[str, object]) -> Self:
        """Reads the settings from JSON text or from what JSON text decodes to. Raises InvalidSwapSettings."""
        try:
            settings = cls.model_validate_json(value if isinstance(value, str) else json.dumps(dict(value)))
        except ValidationError as error:
            raise InvalidSwapSettings(
                "; ".join(cls._explain(dict(e)) for e in error.errors(include_url=False))
            ) from error
        return settings

    @classmethod
    def _explain(cls, error: Mapping[str, object]) -> str:
        location = error["loc"]
        names = [str(part) for part in location if part not in ("int", "str")] if isinstance(location, tuple) else []
        field = ".".join(("swap", *names))
        match error["type"]:
            case "extra_forbidden":
                return f"{field}: unknown; allowed are {', '.join(cls.model_fields)}"
            case "value_error":
                context = error["ctx"]
                return f"{field}: {context['error'] if isinstance(context, dict) else error['msg']}"
            case _:
                return f"{field}: {error['msg']}"
