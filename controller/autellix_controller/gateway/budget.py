"""A bound on the bytes of request bodies that are held at once, whatever their number."""

from autellix_controller.errors import ApiError, ErrorCode


class ByteBudget:
    """Bytes that all bodies together may hold."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0

    def open(self) -> "Share":
        """A share for one body, empty at first."""
        return Share(self)

    def take(self, size: int) -> None:
        """Sets bytes aside. Raises ApiError 429 if they are not there; a body alone may always have all it needs."""
        if self.used and self.used + size > self._limit:
            message = f"The bodies of running calls together would be larger than {self._limit} bytes; try again."
            raise ApiError(ErrorCode.CONTENDED, message, param="bodies_limit_bytes", retry_after_seconds=1)
        self.used += size

    def give_back(self, size: int) -> None:
        """Returns bytes."""
        self.used -= size


class Share:
    """What one body holds of a budget. Given back once, by ``close``."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._size = 0

    def grow_to(self, size: int) -> None:
        """Sets bytes aside until the share has ``size``. Raises ApiError 429."""
        if size > self._size:
            self._budget.take(size - self._size)
            self._size = size

    def close(self) -> None:
        """Gives all of it back."""
        self._budget.give_back(self._size)
        self._size = 0
