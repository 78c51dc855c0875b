"""Holding a pod's end back."""

import http.server
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from autellix_engine import drain as drain_module
from autellix_engine.drain import EngineGone, Load, StateUnknown, drain, look_at_engine, main, read_key
from autellix_engine.launcher import handover
from autellix_wire import records as wire

BUSY, IDLE = Load(2, 1), Load(0, 0)


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds


def run(
    seen: Sequence[Load | Exception], deadline: float = 60.0, initial_delay: float = 3.0
) -> tuple[float, list[str]]:
    """How long draining took and what it said, if the engine shows this, and the last of it for ever."""
    clock, said = Clock(), list[str]()
    looks = iter(seen)
    last: Load | Exception = IDLE

    def look() -> Load:
        nonlocal last
        last = next(looks, last)
        if isinstance(last, Exception):
            raise last
        return last

    drain(look, deadline, 3.0, clock, clock.sleep, said.append)
    return clock.now - 1000.0, said


def test_an_idle_engine_is_let_go_after_routers_had_time_to_notice() -> None:
    seconds, said = run([IDLE])
    assert 3.0 <= seconds < 4.0
    assert said == ["no call runs or waits"]


def test_it_waits_for_running_and_waiting_calls() -> None:
    seconds, said = run([BUSY] * 10 + [Load(0, 1)] * 10 + [IDLE])
    assert seconds >= 3.0 + 20 * 0.5
    assert said == ["waiting: 2 calls run, 1 wait", "waiting: 0 calls run, 1 wait", "no call runs or waits"]


def test_one_idle_look_between_busy_ones_is_not_believed() -> None:
    seconds, _ = run([IDLE, BUSY, IDLE, BUSY, IDLE])
    assert seconds >= 3.0 + 5 * 0.5


def test_the_deadline_ends_it() -> None:
    seconds, said = run([BUSY], deadline=20.0)
    assert seconds == 20.0
    assert said[-1] == "the deadline of 20 s is reached; last seen waiting: 2 calls run, 1 wait"


@pytest.mark.parametrize("deadline", [0.0, 1.0])
def test_a_deadline_shorter_than_the_delay_ends_it_too(deadline: float) -> None:
    assert run([BUSY], deadline=deadline)[0] == deadline


def test_an_engine_that_is_gone_is_not_waited_for() -> None:
    seconds, said = run([BUSY, EngineGone()])
    assert seconds < 5.0
    assert said[-1] == "the engine is gone"


def test_an_engine_that_says_nothing_is_taken_as_busy() -> None:
    seconds, said = run([StateUnknown("status 401")], deadline=20.0)
    assert seconds == 20.0
    assert said[0] == "waiting: the state of the engine is unknown: status 401"
    assert len(said) == 2


@contextmanager
def engine(answer: Callable[[http.server.BaseHTTPRequestHandler], None]) -> Iterator[int]:
    """An HTTP server that answers every GET so; yields its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def answering(status: int, body: object) -> Callable[[http.server.BaseHTTPRequestHandler], None]:
    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        allowed = request.headers["authorization"] == "Bearer k" and request.path == "/autellix/v1/state"
        request.send_response(status if allowed else 401)
        request.end_headers()
        request.wfile.write(json.dumps(body).encode())

    return answer


def test_the_engine_is_asked_with_its_key() -> None:
    with engine(answering(200, {"load": {"running": 3, "waiting": 4}})) as port:
        assert look_at_engine(port, "k") == Load(3, 4)
        with pytest.raises(StateUnknown, match="status 401"):
            look_at_engine(port, None)


@pytest.mark.parametrize("body", [[], {}, {"load": None}, {"load": {"running": "x", "waiting": 0}}, "text"])
def test_an_answer_that_makes_no_sense_is_no_state(body: object) -> None:
    with engine(answering(200, body)) as port, pytest.raises(StateUnknown):
        look_at_engine(port, "k")


@pytest.mark.parametrize("key", ["secret-key\n", "secret-käy-€"])
def test_a_key_that_no_header_can_carry_is_not_shown(key: str) -> None:
    with engine(answering(200, {})) as port, pytest.raises(StateUnknown, match="key is not visible ASCII") as caught:
        look_at_engine(port, key)
    assert "secret" not in str(caught.value)


def test_names_that_stand_here_again_are_those_of_the_engine() -> None:
    ours = drain_module._KEY_VARIABLE, drain_module._KEY_FILE_VARIABLE, drain_module._STATE_PATH
    assert ours == (handover.ENGINE_KEY, handover.ENGINE_KEY_FILE, wire.STATE_PATH)


def test_the_key_is_the_first_of_the_file_as_it_is_now(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    env = {handover.ENGINE_KEY_FILE: str(path)}
    with pytest.raises(StateUnknown, match=r"AUTELLIX_ENGINE_KEY_FILE: .* cannot be read"):
        read_key(env)
    for text, key in (("old\n", "old"), ("new\nold\n", "new"), ("", None)):
        path.write_text(text)
        assert read_key(env) == key
    assert read_key({handover.ENGINE_KEY: "k"}) == "k"
    assert read_key({}) is None


@pytest.mark.parametrize("text", ["0", "65536", "-1", "x"])
def test_a_wrong_port_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([f"--port={text}", "--deadline-seconds=0"], {})
    assert "--port" in capsys.readouterr().err


def test_the_command_succeeds_when_the_engine_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    with engine(answering(200, {})) as port:
        pass
    assert main(["--port", str(port), "--initial-delay-seconds", "0"], {}) == 0
    assert capsys.readouterr().out == "drain: the engine is gone\n"


@pytest.mark.parametrize("text", ["-1", "inf", "nan", "x"])
def test_a_wrong_time_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([f"--deadline-seconds={text}"], {})
    assert "--deadline-seconds" in capsys.readouterr().err
