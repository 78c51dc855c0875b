"""Which replica does what is to be done once for a program, when all of them learn of it."""

import zlib
from collections.abc import Iterable


def on_duty(program: str, replicas: Iterable[str]) -> str:
    """The one of the replicas (at least one) whose turn it is, by rendezvous hashing: replicas that know the same ones
    agree, and one that comes or goes changes the answer only for the programs that are its own."""
    return max(replicas, key=lambda replica: (zlib.crc32(f"{replica}/{program}".encode()), replica))
