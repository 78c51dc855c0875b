"""Ports: those that nobody listens on, and those of the pods that we make."""

import secrets
import socket

#: Of controllers and of engines.
CONTROLLER_PORT, ENGINE_PORT = 8080, 8000
_LOWEST_PORT, _PORTS = 16_000, 14_000


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody listens on.

    They are below those that the kernel gives to outgoing connections, and drawn at random, also in tests that are
    seeded: nobody else takes one before the program that it is for.
    """
    taken: list[socket.socket] = []
    try:
        while len(taken) < count:
            one = socket.socket()
            try:
                one.bind(("127.0.0.1", _LOWEST_PORT + secrets.randbelow(_PORTS)))
            except OSError:
                one.close()
            else:
                taken.append(one)
        return [int(each.getsockname()[1]) for each in taken]
    finally:
        for each in taken:
            each.close()
