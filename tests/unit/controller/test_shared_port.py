"""The kernel's part of a shared port."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from autellix_controller import shared_port

CLIENTS = 24


@pytest.fixture
def listening() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two sockets that share a port."""
    with ExitStack() as stack:
        one = stack.enter_context(shared_port.bind("127.0.0.1", 0, socket.AF_INET))
        two = stack.enter_context(shared_port.bind("127.0.0.1", one.getsockname()[1], socket.AF_INET))
        for sock in (one, two):
            sock.listen(128)
            sock.setblocking(False)
        yield one, two


def accepted(sock: socket.socket, stack: ExitStack) -> list[socket.socket]:
    """Takes all connections that are made."""
    found = []
    try:
        while True:
            found.append(stack.enter_context(sock.accept()[0]))
    except BlockingIOError:
        return found


async def test_who_has_come_stays_and_who_comes_meets_the_other(
    listening: tuple[socket.socket, socket.socket],
) -> None:
    leaving, staying = listening
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:

        async def come(greeting: bytes) -> None:
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            await loop.sock_connect(client, leaving.getsockname())
            await loop.sock_sendall(client, greeting)

        await asyncio.gather(*(come(b"early") for _ in range(CLIENTS)))
        shared_port.turn_newcomers_away(leaving)
        newcomers = [asyncio.create_task(come(b"late")) for _ in range(CLIENTS)]
        await asyncio.sleep(shared_port.HANDSHAKE_SECONDS)
        first = accepted(leaving, stack)
        leaving.close()
        assert 0 < len(first) < CLIENTS, "the kernel has given both of them some"
        async with asyncio.timeout(60):
            await asyncio.gather(*newcomers)
        assert len(first) + len(accepted(staying, stack)) == 2 * CLIENTS
        for connection in first:
            connection.setblocking(True)
            assert connection.recv(8) == b"early"


async def test_a_socket_that_is_only_bound_gets_nothing() -> None:
    with (
        shared_port.bind("127.0.0.1", 0, socket.AF_INET) as bound,
        shared_port.bind("127.0.0.1", bound.getsockname()[1], socket.AF_INET) as listening,
    ):
        listening.listen(CLIENTS)
        with ExitStack() as stack:
            for _ in range(CLIENTS):
                stack.enter_context(socket.create_connection(bound.getsockname(), timeout=5))
            listening.setblocking(False)
            assert len(accepted(listening, stack)) == CLIENTS
