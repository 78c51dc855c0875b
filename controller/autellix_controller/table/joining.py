"""How what a replica knows and what the store holds become one entry."""

import msgspec

from autellix_controller.table.entry import ProgramEntry, merge, tombstone


def join(stored: ProgramEntry | None, local: ProgramEntry, *, create: bool) -> ProgramEntry | None:
    """What the store should hold; None if the local view has no place there and is dropped.

    ``stored`` is the store's entry (None: no such key). ``local`` is this replica's view with its unwritten figures.
    ``create`` says that the entry may be made: it was opened while the store was away, or the store lost it.

    - Pin and state are the store's. A pin of ours is kept only where the store has an entry of ours to make, or none.
    - Figures merge by maximum, if they are of the same life.
    - Two openings of one program that did not know of each other are one life from the earlier start on.
    - An end is final for its life: it wins over any activity that started before it.
    """
    if stored is None:
        return local if create else None
    if stored.state == "ended":
        reopened = create and local.state == "active" and local.created_ms > stored.created_ms
        return local if reopened else None
    if local.state == "ended":
        return tombstone(stored) if local.created_ms >= stored.created_ms else None
    if not create:
        return merge(stored, local) if local.created_ms >= stored.created_ms else None
    return msgspec.structs.replace(
        merge(stored, local),
        engine=local.engine if stored.engine is None else stored.engine,
        created_ms=min(stored.created_ms, local.created_ms),
    )
