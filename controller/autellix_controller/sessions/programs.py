"""Programs in the process table: opened by sessions and calls, ended by their owner."""

from collections.abc import Callable, Sequence

from autellix_controller.background import SingleFlight
from autellix_controller.errors import ApiError, ErrorCode
from autellix_controller.sessions.identity import Program
from autellix_controller.table.entry import ProgramEntry, program_id
from autellix_controller.table.interface import ProcessTable, TableUnavailable


class Programs:
    """What the API does with programs."""

    def __init__(
        self,
        table: ProcessTable,
        *,
        now_ms: Callable[[], int],
        tell_engines: Callable[[str], None],
        count_end: Callable[[ProgramEntry], None],
    ) -> None:
        """``tell_engines`` has the engines forget a program, given its engine name, and does not wait for them;
        ``count_end`` measures it."""
        self._table, self._now_ms, self._tell_engines, self._count_end = table, now_ms, tell_engines, count_end
        self._opening: SingleFlight[str, ProgramEntry] = SingleFlight()
        self._openings: dict[str, set[str]] = {}
        """By owner: programs that are just being opened."""

    async def open(self, owner: str, session: str, *, most: int | None = None) -> ProgramEntry:
        """The program of a session, opened if it is new. Calls that arrive at once open it once.

        Raises ApiError 429 if it is new and the owner has ``most`` live programs already.
        """
        program = program_id(owner, session)
        entry = self._table.get(program)
        if entry is not None and entry.state == "active":
            return entry
        opening = self._openings.setdefault(owner, set())
        if most is not None and program not in opening:
            live = {entry.id for entry in self._table.page(owner, "", most)}
            if len(live | opening) >= most:
                raise ApiError(
                    ErrorCode.RATE_LIMIT_EXCEEDED,
                    f"The limit of {most} live sessions of {owner} is reached; end one, or let one expire.",
                    param="programs",
                    retry_after_seconds=60,
                )
        opening.add(program)
        try:
            return await self._opening.run(
                program, lambda: self._table.open(program, owner=owner, session=session, now_ms=self._now_ms())
            )
        finally:
            opening.discard(program)
            if not opening:
                self._openings.pop(owner, None)

    def get(self, owner: str, session: str) -> ProgramEntry:
        """The program of a session. Raises ApiError 404; a session of another key is not found."""
        entry = self._table.get(program_id(owner, session))
        if entry is None or entry.state != "active":
            raise _not_found(session)
        return entry

    def page(self, owner: str, after: str, limit: int) -> Sequence[ProgramEntry]:
        """At most ``limit`` programs of one owner, after the session ``after`` (empty: from the start)."""
        return self._table.page(owner, program_id(owner, after) if after else "", limit)

    async def end(self, owner: str, session: str, *, cancel: bool = False) -> ProgramEntry:
        """Ends a session in the table, and has the engines told. Returns what it was. Raises ApiError 404 or 503.

        ``cancel``: its running calls are to end, on every replica.
        """
        entry = self.get(owner, session)
        try:
            ended = await self._table.end(entry.id, cancel=cancel)
        except TableUnavailable as error:
            raise ApiError(
                ErrorCode.TABLE_UNAVAILABLE, f"The session cannot be ended now: {error}", retry_after_seconds=2
            ) from None
        if not ended:
            raise _not_found(session)
        self._count_end(entry)
        self._tell_engines(entry.engine_program)
        return entry

    def known(self, program: Program) -> ProgramEntry | None:
        """What the table knows of a call's program now; None for one that it does not keep."""
        return self._table.get(program.id) if program.session is not None else None


def _not_found(session: str) -> ApiError:
    return ApiError(ErrorCode.SESSION_NOT_FOUND, f"There is no session {session!r}.", param="id")
