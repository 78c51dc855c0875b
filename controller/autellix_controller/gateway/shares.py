"""Who may have how much of what all tenants share, as a pure decision: calls at once, bytes of bodies."""

from collections.abc import Callable
from typing import Final

#: How many times what is free a tenant may hold.
_TIMES_FREE: Final = 3


class Shares:
    """An amount that tenants take from and give back to.

    A tenant may hold at most three times what is left free: dynamic thresholds, as switches share their buffers among
    ports (Choudhury and Hahne, 1998). So a tenant that comes alone gets three quarters, of two that want everything
    each gets three sevenths, and there is room for one that comes, without shares that lie idle for tenants that do
    not. What a tenant holds is not taken from it when others come: it gets no more until it holds less than that.
    """

    def __init__(self, limit: int, *, alone: Callable[[], bool]) -> None:
        """``limit``: of all tenants together; ``alone``: there is one tenant only, so nothing has to be left free."""
        self._limit = limit
        self._alone = alone
        self._held: dict[str, int] = {}
        """By tenant, those that hold anything."""
        self.used = 0

    def has_room(self, tenant: str, amount: int, *, own: int = 0) -> bool:
        """Whether the tenant may take so much more.

        ``own`` is what it holds already for the same thing. A tenant's only thing may have all that is free, and the
        only one of all whatever it needs.
        """
        if self.used == own:
            return True
        free = self._limit - self.used - amount
        if free < 0:
            return False
        held = self._held.get(tenant, 0)
        return held == own or held + amount <= _TIMES_FREE * free or self._alone()

    def take(self, tenant: str, amount: int, *, own: int = 0) -> bool:
        """Takes so much more if there is room, see ``has_room``; False and nothing if not."""
        if not self.has_room(tenant, amount, own=own):
            return False
        self._held[tenant] = self._held.get(tenant, 0) + amount
        self.used += amount
        return True

    def give_back(self, tenant: str, amount: int) -> None:
        """Gives so much back."""
        self.used -= amount
        left = self._held[tenant] - amount
        if left:
            self._held[tenant] = left
        else:
            del self._held[tenant]
