"""Names: of sessions and threads as clients send them, of programs and calls as we make them."""

import re
import secrets
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from autellix_controller.errors import invalid
from autellix_controller.table.entry import program_id
from autellix_wire import headers as names

MAX_NAME_LENGTH: Final = 256
_VISIBLE: Final = re.compile(r"[!-~]{1,256}")
_THREAD: Final = names.THREAD.encode()
_REQUEST_ID: Final = re.compile(rb"[!-~]{1,128}")


class Program(msgspec.Struct, frozen=True):
    """Which program a call belongs to."""

    id: str
    owner: str
    session: str | None
    """The caller's name for it; None if the call is a program of its own, which the table does not keep."""


def checked_name(name: str, *, param: str) -> str:
    """A session or thread name as clients may send it. Raises ApiError 400 otherwise."""
    if not _VISIBLE.fullmatch(name):
        raise invalid(f"{param} must be 1 to {MAX_NAME_LENGTH} visible ASCII characters.", param=param)
    return name


def checked_header(value: bytes, *, param: str) -> str:
    """The same for a header's bytes."""
    return checked_name(value.decode("latin-1"), param=param)


def new_session() -> str:
    """A session name of ours, not to be guessed."""
    return "sess_" + secrets.token_hex(16)


def new_call() -> str:
    """An id for a call, unique for ever."""
    return secrets.token_hex(16)


def request_id(given: bytes | None, ours: str) -> str:
    """The caller's request id if it is harmless (1 to 128 visible ASCII characters), else one made of ``ours``, an id
    as ``new_call`` makes them."""
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given.decode("ascii")
    return "req_" + ours


def program_of(owner: str, session: str | None, call: str) -> Program:
    """The program of a call: its session's, or its own."""
    return Program(program_id(owner, session) if session is not None else call, owner, session)


class SessionHeaders:
    """The headers that may name a call's session: ours first, then those that agent tools send of their own accord."""

    def __init__(self, others: Sequence[str]) -> None:
        """``others`` in order of preference."""
        self._names = tuple((name, name.lower().encode()) for name in ("X-Autellix-Session", *others))

    def read(self, header: Callable[[bytes], bytes | None]) -> tuple[str | None, str | None]:
        """Session and thread as the headers name them, None if they do not. Raises ApiError 400."""
        thread = header(_THREAD)
        checked_thread = checked_header(thread, param="X-Autellix-Thread") if thread is not None else None
        for name, raw_name in self._names:
            if (value := header(raw_name)) is not None:
                return checked_header(value, param=name), checked_thread
        return None, checked_thread
