"""What the controller tells an engine about the program a call belongs to.

It travels as ``vllm_xargs`` in the request body, the one extension field that every vLLM API carries to the
scheduler.
Values there are strings, integers or floats.
"""

import sys
from collections.abc import Mapping
from typing import Final

import msgspec

#: The key of the request body under which vLLM carries the context.
XARGS_FIELD: Final = "vllm_xargs"
#: Everything under this prefix belongs to us: whatever a client sent there is dropped by the controller.
PREFIX: Final = "autellix_"
#: Longest accepted program, call, thread and replica id, in characters.
MAX_ID_LENGTH: Final = 256
#: Integers beyond this do not become floats.
_MAX_FIGURE: Final = sys.float_info.max


class InvalidContext(ValueError):
    """The context of a request is incomplete or out of range; the message names the field."""


class ProgramContext(msgspec.Struct, frozen=True, kw_only=True):
    """The history of a program as its next call brings it to an engine. All durations are milliseconds, never
    negative."""

    program: str
    """Id of the program, derived by the controller: never a name a client chose."""
    call: str
    """Id of this call, unique for ever."""
    thread: str = ""
    """Which of the program's threads the call belongs to, as the client names it; for people, no policy needs it."""
    replica: str = ""
    """The controller replica that sent the call; it applies the call's record."""
    service_ms: float = 0.0
    """Executor time of all the program's finished calls, summed (what PLAS orders by)."""
    path_ms: float = 0.0
    """Executor time along the program's longest path so far (what ATLAS orders by)."""
    wait_ms: float = 0.0
    """Longest accumulated time in scheduler queues so far (for anti-starvation)."""

    def to_xargs(self) -> dict[str, str | float]:
        """The context as entries of ``vllm_xargs``."""
        return {PREFIX + name: getattr(self, name) for name in self.__struct_fields__}

    @classmethod
    def from_xargs(cls, xargs: Mapping[str, object]) -> "ProgramContext | None":
        """Reads the context back; None if the request carries none (then it is a program of its own).

        Raises InvalidContext if it carries one that is malformed.
        """
        found = {name: xargs[PREFIX + name] for name in cls.__struct_fields__ if PREFIX + name in xargs}
        if not found:
            return None
        for name in ("program", "call"):
            if not found.get(name):
                raise InvalidContext(f"{PREFIX}{name}: missing, though the request carries other {PREFIX}* fields")
        for name, value in found.items():
            if name.endswith("_ms"):
                # The message shows no value: it may be long, and integers of many digits cannot even be printed.
                if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_FIGURE:
                    raise InvalidContext(f"{PREFIX}{name}: not a finite number of milliseconds from 0 up")
                found[name] = float(value)
            elif not _is_id(value):
                raise InvalidContext(f"{PREFIX}{name}: not a string of at most {MAX_ID_LENGTH} Unicode characters")
        return cls(**found)  # type: ignore[arg-type]


def _is_id(value: object) -> bool:
    """Whether the value can travel on in call records, which are UTF-8: half a surrogate pair cannot."""
    if not isinstance(value, str) or len(value) > MAX_ID_LENGTH:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
