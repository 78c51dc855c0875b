"""Which replica does what is to be done once for a program, when all of them learn of it."""

from collections.abc import Iterable

from autellix_controller.rendezvous import draw


def on_duty(program: str, replicas: Iterable[str]) -> str:
    """The one of the replicas (at least one) whose turn it is, by rendezvous hashing: replicas that know the same ones
    agree."""
    return max(replicas, key=lambda replica: (draw(program, replica), replica))
