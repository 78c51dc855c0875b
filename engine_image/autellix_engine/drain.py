"""``drain``: holds a pod's end back until no call runs on its engine. Standard library only: it starts in an instant.

It runs as preStop hook. By then the pod is leaving the routers' lists; once they have noticed, no new calls come, and
when the last one has ended SIGTERM may follow.
"""

import argparse
import http.client
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_KEY_VARIABLE: Final = "AUTELLIX_ENGINE_KEY"
_KEY_FILE_VARIABLE: Final = "AUTELLIX_ENGINE_KEY_FILE"
_STATE_PATH: Final = "/autellix/v1/state"
#: Longest time one question to the engine may take.
_REQUEST_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.5
#: A call on its way from the HTTP server to the scheduler is seen by neither for a moment: one look is not enough.
_IDLE_LOOKS: Final = 2


class EngineGone(Exception):
    """Nothing listens on the engine's port: there is nothing to wait for."""


class StateUnknown(Exception):
    """The engine did not say what it is doing; the message says how that showed."""


@dataclass(frozen=True)
class Load:
    """Calls in the engine."""

    running: int
    waiting: int


def drain(
    look: Callable[[], Load],
    deadline_seconds: float,
    initial_delay_seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    say: Callable[[str], None] = print,
) -> None:
    """Returns when no call runs or waits, when the engine is gone, or at the deadline, and says which."""
    deadline = clock() + deadline_seconds
    sleep(min(initial_delay_seconds, deadline_seconds))
    idle_looks, last_said = 0, ""
    while clock() < deadline:
        try:
            load = look()
        except EngineGone:
            say("the engine is gone")
            return
        except StateUnknown as error:
            idle_looks, seen = 0, f"waiting: the state of the engine is unknown: {error}"
        else:
            idle = load.running == load.waiting == 0
            idle_looks = idle_looks + 1 if idle else 0
            if idle_looks == _IDLE_LOOKS:
                say("no call runs or waits")
                return
            seen = f"waiting: {load.running} calls run, {load.waiting} wait"
        if seen != last_said and not idle_looks:
            say(seen)
            last_said = seen
        sleep(max(0.0, min(_POLL_SECONDS, deadline - clock())))
    say(f"the deadline of {deadline_seconds:g} s is reached" + (f"; last seen {last_said}" if last_said else ""))


def read_key(env: Mapping[str, str]) -> str | None:
    """The engine's key, None if it has none: from the file as it is now, since keys are exchanged there, or from the
    environment. Raises StateUnknown."""
    file = env.get(_KEY_FILE_VARIABLE)
    if file is None:
        return env.get(_KEY_VARIABLE)
    try:
        words = Path(file).read_text().split()
    except (OSError, UnicodeDecodeError) as error:
        raise StateUnknown(f"{_KEY_FILE_VARIABLE}: {file} cannot be read: {type(error).__name__}") from None
    return words[0] if words else None


def look_at_engine(port: int, key: str | None) -> Load:
    """Asks the engine on this machine. Raises EngineGone or StateUnknown."""
    if key is not None and not (key.isascii() and key.isprintable()):  # http.client would show it in its error
        raise StateUnknown("the engine's key is not visible ASCII")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_REQUEST_SECONDS)
    try:
        connection.request("GET", _STATE_PATH, headers={"authorization": f"Bearer {key}"} if key else {})
        response = connection.getresponse()
        body = response.read()
        if response.status != http.HTTPStatus.OK:
            raise StateUnknown(f"status {response.status}")
        load = json.loads(body)["load"]
        return Load(int(load["running"]), int(load["waiting"]))
    except ConnectionRefusedError:
        raise EngineGone from None
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
        raise StateUnknown(f"{type(error).__name__}: {error}") from error
    finally:
        connection.close()


def main(arguments: Sequence[str], env: Mapping[str, str]) -> int:
    """The command. Its exit status is 0 however it ends: a pod's end is held back, never refused."""
    parser = argparse.ArgumentParser(
        prog="python3 -m autellix_engine drain",
        description="Waits until no call runs on the engine of this pod; for its preStop hook.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--deadline-seconds", type=_seconds, default=60.0, metavar="N", help="wait no longer than this (default: 60)"
    )
    parser.add_argument(
        "--initial-delay-seconds",
        type=_seconds,
        default=3.0,
        metavar="N",
        help="wait at least this long, so that routers notice that the pod is leaving (default: 3)",
    )
    parser.add_argument("--port", type=_port, default=8000, help="the engine's port (default: 8000)")
    given = parser.parse_args(arguments)
    drain(
        lambda: look_at_engine(given.port, read_key(env)),
        given.deadline_seconds,
        given.initial_delay_seconds,
        say=lambda text: print(f"drain: {text}", flush=True),  # noqa: T201
    )
    return 0


def _port(text: str) -> int:
    port = int(text)
    if not 0 < port < 65536:
        raise argparse.ArgumentTypeError(f"{text} is not a port from 1 to 65535")
    return port


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds from 0 up")
    return seconds
