"""How much host memory swapping gets: decided and refused before anything starts."""

import pytest

from autellix_engine.launcher.arguments import InvalidArguments
from autellix_engine.launcher.memory import resolve_swap
from autellix_kernels.pool import MemoryFacts

GIB = 1 << 30
FACTS = MemoryFacts(available=20 * GIB, container=12 * GIB, locked=None)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("{}", 0),
        ('{"size": 0}', 0),
        ('{"size": "0"}', 0),
        ('{"size": 1048576}', 1 << 20),
        ('{"size": "1048576"}', 1 << 20),
        ('{"size": "2Gi"}', 2 * GIB),
        ('{"size": "3G"}', 3 * 10**9),
        ('{"size": "50%"}', 8 * GIB),
        ('{"size": "75%"}', 12 * GIB),
    ],
)
def test_a_size_is_bytes_or_a_share_of_the_limit(size: str, expected: int) -> None:
    assert resolve_swap(size, 16 * GIB, FACTS).size == expected


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('{"size": "91%"}', "--swap.size: '91%' is not allowed; .* at most 90%"),
        ('{"size": "much"}', "--swap.size: 'much' is not allowed; give a number of bytes"),
        ('{"size": -1}', "--swap.size: -1 is not allowed"),
        ('{"bytes": 1}', "--swap.bytes: unknown; allowed are size, "),
        ('{"prefetch_seconds": -1}', "--swap.prefetch_seconds: .*greater than or equal to 0"),
        ('{"staging_slabs": 1}', "--swap.staging_slabs: 1 is not allowed, must be 2 or more"),
        ("{", "--swap: Invalid JSON"),
        ('{"size": "90%"}', r"--swap.size asks for 14.40 GiB .* left under the container's limit \(12.00 GiB\)"),
        ('{"size": "21Gi"}', r"--swap.size asks for 21.00 GiB .* memory available on the machine \(20.00 GiB\)"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given: str, said: str) -> None:
    with pytest.raises(InvalidArguments, match=f"^{said}"):
        resolve_swap(given, 16 * GIB, FACTS)
