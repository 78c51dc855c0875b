"""From keys and bytes of the store to the mirror and the list of replicas."""

from collections.abc import Callable, Sequence

from autellix_controller.table.layout import Layout, decode_program
from autellix_controller.table.mirror import Mirror, Stored
from autellix_controller.table.store import Value
from autellix_controller.table.watcher import Event


def learn(mirror: Mirror, program: str, revision: int, value: Value | None) -> None:
    """Tells the mirror what a reply said of a program's key (None: that at ``revision`` there was no such key)."""
    if value is None:
        mirror.learn_absent(program, revision)
    else:
        mirror.learn(program, decode_program(program, value.data), value.revision)


class MirrorSync:
    """The watcher's sink. ``wake_writer`` is called when the store may have lost what the mirror puts back."""

    def __init__(self, mirror: Mirror, layout: Layout, wake_writer: Callable[[], None]) -> None:
        self._mirror = mirror
        self._layout = layout
        self._wake_writer = wake_writer
        self._programs: dict[str, Stored] = {}
        self._replicas: set[str] = set()
        self.replicas: frozenset[str] = frozenset()
        """Registered replicas."""
        self.loaded = False
        """One listing was complete."""

    def snapshot_begins(self) -> None:
        """See ``Sink``."""
        self._programs = {}
        self._replicas = set()

    def snapshot_page(self, values: Sequence[Value]) -> None:
        """See ``Sink``."""
        for value in values:
            program = self._layout.program_of(value.key)
            if program is not None:
                self._programs[program] = Stored(decode_program(program, value.data), value.revision)
            elif (replica := self._layout.replica_of(value.key)) is not None:
                self._replicas.add(replica)

    def snapshot_complete(self, revision: int, *, same_history: bool) -> None:
        """See ``Sink``."""
        self._mirror.load(self._programs, revision, same_history=same_history)
        self.replicas = frozenset(self._replicas)
        self._programs = {}
        self.loaded = True
        self._wake_writer()

    def events(self, events: Sequence[Event], revision: int) -> None:
        """See ``Sink``."""
        for event in events:
            program = self._layout.program_of(event.key)
            if program is not None:
                self._program(program, event)
            elif (replica := self._layout.replica_of(event.key)) is not None:
                self.replicas = self.replicas - {replica} if event.data is None else self.replicas | {replica}
        self._mirror.advance(revision)
        if self._mirror.pending:
            self._wake_writer()

    def _program(self, program: str, event: Event) -> None:
        if event.data is None:
            self._mirror.delete(program, event.revision)
        elif self._mirror.stored(program).revision < event.revision:
            self._mirror.put(program, decode_program(program, event.data), event.revision)
