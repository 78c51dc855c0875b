"""A bound on the bytes of request bodies that are held at once, whatever their number."""

from collections.abc import Callable

from autellix_controller.errors import ApiError, ErrorCode
from autellix_controller.gateway.shares import Shares


class ByteBudget:
    """Bytes that all bodies together may hold, shared fairly by tenants."""

    def __init__(self, limit: int, *, alone: Callable[[], bool]) -> None:
        """``alone`` as for ``Shares``."""
        self._limit = limit
        self._shares = Shares(limit, alone=alone)

    @property
    def used(self) -> int:
        """Bytes that are held now."""
        return self._shares.used

    def open(self, tenant: str) -> "Share":
        """A share for one body of the tenant, empty at first."""
        return Share(self._shares, tenant, self._limit)


class Share:
    """What one body holds of a budget. Given back once, by ``close``."""

    def __init__(self, shares: Shares, tenant: str, limit: int) -> None:
        """``limit`` of the budget, for messages."""
        self._shares, self._tenant, self._limit = shares, tenant, limit
        self._size = 0

    def check(self, size: int) -> None:
        """Raises ApiError 429 if the body could not have so many bytes now. It gets them as they arrive: what is only
        announced takes room from nobody."""
        if not self._shares.has_room(self._tenant, size - self._size, own=self._size):
            raise self._no_room()

    def grow_to(self, size: int) -> None:
        """Sets bytes aside until the share has ``size``. Raises ApiError 429."""
        if size > self._size:
            if not self._shares.take(self._tenant, size - self._size, own=self._size):
                raise self._no_room()
            self._size = size

    def close(self) -> None:
        """Gives all of it back."""
        if self._size:
            self._shares.give_back(self._tenant, self._size)
            self._size = 0

    def _no_room(self) -> ApiError:
        message = f"The bodies of running calls together would be larger than {self._limit} bytes; try again."
        return ApiError(ErrorCode.CONTENDED, message, param="bodies_limit_bytes", retry_after_seconds=1)
