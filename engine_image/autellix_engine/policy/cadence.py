"""When the policy is asked: every N steps, and whenever a call arrives or a finished one leaves a slot."""


class Cadence:
    """Decides before each step whether a decision is due.

    Up to ``spare_calls`` slots that fall free between two decisions are refilled in queue order without asking; the
    next one asks. Between decisions only free slots are filled: nobody is preempted or promoted.
    """

    def __init__(self, *, steps_per_decision: int, spare_calls: int) -> None:
        self._steps_per_decision = steps_per_decision
        self._spare_calls = spare_calls
        self._steps_left = 0
        self._spare_left = spare_calls

    def arrived(self) -> None:
        """A call arrived or became able to run."""
        self._steps_left = 0

    def finished(self) -> None:
        """A call ended."""
        self._spare_left -= 1
        if self._spare_left < 0:
            self._steps_left = 0

    def due(self) -> bool:
        """Whether a decision is due before the step that begins now."""
        if self._steps_left > 0:
            self._steps_left -= 1
            return False
        self._steps_left = self._steps_per_decision - 1
        self._spare_left = self._spare_calls
        return True
