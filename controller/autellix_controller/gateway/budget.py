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
        return Share(self, tenant)

    def check(self, tenant: str, size: int, *, own: int) -> None:
        """Raises ApiError 429 if the tenant may not have so many bytes more for a body that has ``own``."""
        if not self._shares.has_room(tenant, size, own=own):
            message = f"The bodies of running calls together would be larger than {self._limit} bytes; try again."
            raise ApiError(ErrorCode.CONTENDED, message, param="bodies_limit_bytes", retry_after_seconds=1)

    def take(self, tenant: str, size: int) -> None:
        """Sets bytes aside."""
        self._shares.take(tenant, size)

    def give_back(self, tenant: str, size: int) -> None:
        """Returns bytes."""
        self._shares.give_back(tenant, size)


class Share:
    """What one body holds of a budget. Given back once, by ``close``."""

    def __init__(self, budget: ByteBudget, tenant: str) -> None:
        self._budget = budget
        self._tenant = tenant
        self._size = 0

    def check(self, size: int) -> None:
        """Raises ApiError 429 if the body could not have so many bytes now. It gets them as they arrive: what is only
        announced takes room from nobody."""
        self._budget.check(self._tenant, size - self._size, own=self._size)

    def grow_to(self, size: int) -> None:
        """Sets bytes aside until the share has ``size``. Raises ApiError 429."""
        if size > self._size:
            self.check(size)
            self._budget.take(self._tenant, size - self._size)
            self._size = size

    def close(self) -> None:
        """Gives all of it back."""
        if self._size:
            self._budget.give_back(self._tenant, self._size)
            self._size = 0
