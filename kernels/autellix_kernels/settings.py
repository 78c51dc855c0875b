"""What can be set, with defaults and what is allowed."""

from dataclasses import dataclass, fields

from autellix_kernels.errors import SettingError

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True)
class SwapSettings:
    """Settings of a `SwapEngine`. None of the defaults has been measured yet: see docs/swapping.md for their reasons.

    Attributes:
        staging_bytes: size of a staging slab on the GPU. A slab holds at least one block, whatever this says.
        staging_slabs: slabs per direction; two or more, so that the bus moves one while another is filled.
        thread_blocks: thread blocks of 128 threads per gather or scatter; few, so that the model keeps the GPU.
        gather_below_bytes: fragments smaller than this are gathered; larger ones go by the driver's batched copy.
        gather_from_fragments: transfers of fewer fragments go by the batched copy, for which no kernel must start.
    """

    staging_bytes: int = 4 * MIB
    staging_slabs: int = 3
    thread_blocks: int = 64
    gather_below_bytes: int = 64 * KIB
    gather_from_fragments: int = 64

    def __post_init__(self) -> None:
        least = {
            "staging_bytes": 4 * KIB,
            "staging_slabs": 2,
            "thread_blocks": 1,
            "gather_below_bytes": 0,
            "gather_from_fragments": 0,
        }
        for field in fields(self):
            value = getattr(self, field.name)
            if value < least[field.name]:
                raise SettingError(f"{field.name}: {value} is not allowed, must be {least[field.name]} or more")
