import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from onenode.errors import OnenodeError
from support.reach import Visitor, reached, reached_by_all


class Here:
    """A Kubernetes whose pods are this machine."""

    def kubectl(self, *arguments: str, stdin: str | None = None, seconds: float = 300) -> str:
        python, *words = arguments[arguments.index("--") + 1 :]
        assert (arguments[0], python) == ("exec", "python3")
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=seconds)
        if done.returncode:
            raise OnenodeError(done.stderr)
        return done.stdout

    def helm(self, *arguments: str, stdin: str | None = None, seconds: float = 600) -> str:
        raise NotImplementedError

    def image(self, name: str) -> str:
        raise NotImplementedError

    def reach(self, namespace: str, resource: str, port: int) -> AbstractContextManager[str]:
        raise NotImplementedError


@pytest.fixture
def served() -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield "127.0.0.1", server.getsockname()[1]


def test_what_answers_is_reached(served: tuple[str, int]) -> None:
    assert reached(Here(), Visitor("space", "pod"), {"a": served, "b": served}) == {"a", "b"}


def test_each_visitor_has_an_answer_of_its_own(served: tuple[str, int]) -> None:
    visitors = {name: Visitor("space", name) for name in ("one", "two")}
    assert reached_by_all(Here(), visitors, {"a": served}) == {"one": {"a"}, "two": {"a"}}


def test_a_place_where_nothing_listens_is_an_error_since_no_policy_refuses(served: tuple[str, int]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = closed.getsockname()[:2]
    with pytest.raises(OnenodeError, match="ConnectionRefusedError"):
        reached(Here(), Visitor("space", "pod"), {"a": served, "nobody": nobody})


def test_a_place_whose_packets_are_lost_is_not_reached(served: tuple[str, int]) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        place = full.getsockname()
        with socket.create_connection(place):  # takes the only place in the queue of connections
            assert reached(Here(), Visitor("space", "pod"), {"full": place, "a": served}) == {"a"}
