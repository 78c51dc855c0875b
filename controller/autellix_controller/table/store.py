"""The few operations that the table needs of etcd, each with a deadline and one way to fail."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NoReturn, TypeVar

import grpc
import msgspec
from etcd3aio._protobuf import (
    Compare,
    LeaseKeepAliveRequest,
    PutRequest,
    RangeRequest,
    RequestOp,
    TxnRequest,
    TxnResponse,
)
from etcd3aio.errors import EtcdError, EtcdUnauthenticatedError
from etcd3aio.kv import prefix_range_end

from autellix_controller.table.channel import Member, Members
from autellix_controller.table.contact import Contact
from autellix_controller.table.timings import Timings

#: Keys in one transaction. The default bound of etcd is 128 operations, and a nested one counts for each that it is in.
MAX_SWAPS: Final = 127
_PAGE_KEYS: Final = 1000

_T = TypeVar("_T")


class StoreAway(Exception):
    """The store did not answer, or refused for now. A write may have happened all the same: read before repeating."""


class LeaseGone(Exception):
    """A write named a lease that has expired; nothing was written."""


class Compacted(Exception):
    """The history that a read or watch asked for is gone."""


class Value(msgspec.Struct, frozen=True, gc=False):
    """A key's value and the revision that wrote it."""

    key: bytes
    data: bytes
    revision: int


class Swap(msgspec.Struct, frozen=True, gc=False):
    """Put ``data`` if the key is still as ``expected`` wrote it (0: if there is no such key)."""

    key: bytes
    expected: int
    data: bytes
    lease: int


class Swapped(msgspec.Struct, frozen=True, gc=False):
    """Outcome of one swap; ``current`` is what stood in the way (None: the key is gone)."""

    done: bool
    current: Value | None = None


class EtcdStore:
    """Compare-and-swap, reads and leases on one etcd cluster."""

    def __init__(self, members: Members, contact: Contact, timings: Timings) -> None:
        self.members = members
        self.contact = contact
        self._timings = timings

    async def swap(self, swaps: Sequence[Swap]) -> tuple[int, list[Swapped]]:
        """Swaps at most MAX_SWAPS different keys, each for itself: one that lost holds up no other.

        Returns the transaction's revision and the outcomes in order. A repeat is harmless, since the first one moved
        the revision it is guarded by. Raises StoreAway or LeaseGone.

        All or nothing is tried first: nearly always nothing stands in the way, and such a transaction costs client
        and server half of what one costs that guards each key for itself.
        """
        compares, puts = [_unchanged(swap) for swap in swaps], [_put(swap) for swap in swaps]
        if len(swaps) == 1:
            reply = await self._txn(compares, puts, [_get(swaps[0])])
            return reply.header.revision, [_outcome(swaps[0], reply)]
        reply = await self._txn(compares, puts, [])
        if reply.succeeded:
            return reply.header.revision, [Swapped(done=True)] * len(swaps)
        each = [
            RequestOp(request_txn=TxnRequest(compare=[compare], success=[put], failure=[_get(swap)]))
            for swap, compare, put in zip(swaps, compares, puts, strict=True)
        ]
        reply = await self._txn([], each, [])
        replies = [response.response_txn for response in reply.responses]
        return reply.header.revision, [_outcome(swap, part) for swap, part in zip(swaps, replies, strict=True)]

    async def put(self, key: bytes, data: bytes, lease: int) -> None:
        """Puts a key that has one writer only. Raises StoreAway or LeaseGone."""
        member = self.members.current
        await self._write(member, lambda: member.kv.put(key, data, lease, timeout=self._timings.call))

    async def grant(self, ttl_seconds: int) -> int:
        """A new lease. Raises StoreAway."""
        member = self.members.current
        reply = await self._write(member, lambda: member.lease.grant(ttl_seconds, timeout=self._timings.call))
        return int(reply.ID)

    async def read(self, key: bytes, *, at: int = 0) -> tuple[int, Value | None]:
        """The store's revision and the key's newest value, linearizable; or the value that it had ``at`` a revision.

        Raises StoreAway, and Compacted if that revision is gone.
        """
        member = self.members.current
        reply = await self._answer(member, lambda: member.kv.get(key, revision=at, timeout=self._timings.call))
        found = reply.kvs
        value = Value(key, found[0].value, found[0].mod_revision) if found else None
        return int(reply.header.revision), value

    async def pages(self, prefix: bytes) -> AsyncIterator[tuple[int, list[Value]]]:
        """All keys under the prefix as of one revision, in pages, each with that revision.

        Raises StoreAway, or Compacted if the revision was compacted between two pages.
        """
        start, end, revision = prefix, prefix_range_end(prefix), 0
        while True:
            member = self.members.current
            ask = partial(member.kv.get, start, end, revision=revision, limit=_PAGE_KEYS)
            reply = await self._answer(member, partial(ask, timeout=self._timings.list_page))
            revision = revision or int(reply.header.revision)
            values = [Value(kv.key, kv.value, kv.mod_revision) for kv in reply.kvs]
            yield revision, values
            if not reply.more:
                return
            start = values[-1].key + b"\0"

    async def keep_alive(self, lease: int) -> bool:
        """Renews a lease; False if it has expired. Raises StoreAway."""
        member = self.members.current

        async def renew() -> bool:
            call = member.keep_alive.LeaseKeepAlive(
                iter([LeaseKeepAliveRequest(ID=lease)]), metadata=member.metadata, timeout=self._timings.call
            )
            try:
                reply = await call.read()
            finally:
                call.cancel()
            return reply is not grpc.aio.EOF and reply.TTL > 0

        return await self._answer(member, renew)

    async def revoke(self, lease: int) -> None:
        """Ends a lease and deletes its keys. Raises StoreAway."""
        member = self.members.current
        await self._answer(member, lambda: member.lease.revoke(lease, timeout=self._timings.call))

    async def _txn(
        self, compare: Sequence[Compare], success: Sequence[RequestOp], failure: Sequence[RequestOp]
    ) -> TxnResponse:
        member = self.members.current
        return await self._write(member, lambda: member.kv.txn(compare, success, failure, timeout=self._timings.call))

    async def _write(self, member: Member, call: Callable[[], Awaitable[_T]]) -> _T:
        try:
            reply = await self._answer(member, call)
        except StoreAway as error:
            self.contact.failed(str(error))
            raise
        self.contact.succeeded()
        return reply

    async def _answer(self, member: Member, call: Callable[[], Awaitable[_T]]) -> _T:
        try:
            token = await member.signed_in(self._timings.call)
            try:
                return await call()
            except (EtcdUnauthenticatedError, grpc.aio.AioRpcError) as error:
                if not (member.has_user and _signed_out(error)):
                    raise
                # Refused before anything happened: a new token, and once more.
                await member.signed_in(self._timings.call, instead_of=token)
                return await call()
        except (EtcdError, grpc.aio.AioRpcError, TimeoutError) as error:
            self._fail(member, error)

    def _fail(self, member: Member, error: Exception) -> NoReturn:
        cause = error if isinstance(error, grpc.aio.AioRpcError) else error.__cause__
        if not isinstance(cause, grpc.aio.AioRpcError):
            self.members.failed(member)
            raise StoreAway(f"{member.endpoint}: no answer within the deadline") from error
        details = cause.details() or ""
        if cause.code() == grpc.StatusCode.NOT_FOUND and "lease not found" in details:
            raise LeaseGone(details) from error
        if cause.code() == grpc.StatusCode.OUT_OF_RANGE and "compacted" in details:
            raise Compacted(details) from error
        self.members.failed(member)
        raise StoreAway(f"{member.endpoint}: {cause.code().name}: {details}") from error


def _signed_out(error: EtcdUnauthenticatedError | grpc.aio.AioRpcError) -> bool:
    """Whether a new token makes this good: the old one has expired, or rights have changed since."""
    if isinstance(error, EtcdUnauthenticatedError):
        return True
    return error.code() == grpc.StatusCode.UNAUTHENTICATED or "revision of auth store is old" in (error.details() or "")


def _unchanged(swap: Swap) -> Compare:
    return Compare(result=Compare.EQUAL, target=Compare.MOD, key=swap.key, mod_revision=swap.expected)


def _put(swap: Swap) -> RequestOp:
    return RequestOp(request_put=PutRequest(key=swap.key, value=swap.data, lease=swap.lease))


def _get(swap: Swap) -> RequestOp:
    return RequestOp(request_range=RangeRequest(key=swap.key))


def _outcome(swap: Swap, reply: TxnResponse) -> Swapped:
    if reply.succeeded:
        return Swapped(done=True)
    found = reply.responses[0].response_range.kvs
    return Swapped(done=False, current=Value(swap.key, found[0].value, found[0].mod_revision) if found else None)
