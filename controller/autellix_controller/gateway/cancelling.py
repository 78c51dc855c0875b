"""Which calls of which program run here, so that they can be ended with their session."""

import asyncio
from typing import Final

from autellix_controller.errors import ApiError, ErrorCode
from autellix_controller.gateway.interrupt import Interruptible
from autellix_controller.table.interface import ProcessTable

#: How often running calls are compared with the table: sessions end on other replicas too.
_LOOK_SECONDS: Final = 0.5


class ProgramCalls:
    """The running calls of sessions, each with the life of its program that it belongs to."""

    def __init__(self, table: ProcessTable) -> None:
        self._table = table
        self._calls: dict[str, dict[Interruptible, int]] = {}

    def add(self, program: str, life_ms: int, call: Interruptible) -> None:
        """A call runs; ``life_ms`` is the start of the program's present life (``ProgramEntry.created_ms``)."""
        self._calls.setdefault(program, {})[call] = life_ms

    def discard(self, program: str, call: Interruptible) -> None:
        """It does not any more."""
        calls = self._calls.get(program, {})
        calls.pop(call, None)
        if not calls:
            self._calls.pop(program, None)

    def end_cancelled(self, program: str) -> int:
        """Ends the program's calls that the table says are to end; returns how many there were."""
        entry = self._table.get(program)
        if entry is None:
            return 0
        found = [call for call, life in self._calls.get(program, {}).items() if life <= entry.cancelled_ms]
        for call in found:
            call.interrupt(ApiError(ErrorCode.SESSION_ENDED, "The session was ended, and its running calls with it."))
        return len(found)

    async def follow(self) -> None:
        """Ends what other replicas cancelled, for ever."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for program in list(self._calls):
                self.end_cancelled(program)
