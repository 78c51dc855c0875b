"""Who is alive: each replica's own key, under a lease that it renews."""

import asyncio
import contextlib
from typing import Final

import msgspec

from autellix_controller.table.layout import Layout
from autellix_controller.table.store import EtcdStore, LeaseGone, StoreAway
from autellix_controller.table.timings import Timings

_RENEWALS_PER_TTL: Final = 3


class Registry:
    """Keeps this replica registered."""

    def __init__(self, store: EtcdStore, layout: Layout, replica: str, timings: Timings) -> None:
        self._store = store
        self._key = layout.replica_key(replica)
        self._value = msgspec.json.encode({"schema": 1, "name": replica})
        self._ttl = timings.replica_ttl
        self._lease: int | None = None

    async def run(self) -> None:
        """Registers and renews for ever. With the store away it tries again with every renewal."""
        while True:
            # The contact has noted why the store is away; a lease that is gone shows at the next renewal, too.
            with contextlib.suppress(StoreAway, LeaseGone):
                await self._renew()
            await asyncio.sleep(self._ttl / _RENEWALS_PER_TTL)

    async def _renew(self) -> None:
        if self._lease is None or not await self._store.keep_alive(self._lease):
            self._lease = None
            lease = await self._store.grant(max(1, round(self._ttl)))
            await self._store.put(self._key, self._value, lease)
            self._lease = lease
        elif self._store.contact.away:
            # Renewals tell nothing about writes: find out whether those work again.
            await self._store.put(self._key, self._value, self._lease)

    async def leave(self) -> None:
        """Takes the registration back at once. Raises StoreAway (then the lease expires by itself)."""
        if self._lease is not None:
            lease, self._lease = self._lease, None
            with contextlib.suppress(LeaseGone):
                await self._store.revoke(lease)
