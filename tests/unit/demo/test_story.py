"""What the demo does to a cluster that goes on without it."""

from demo import story
from onenode.target import ContextTarget
from support.installation import Installation


class RecordingTarget(ContextTarget):
    """Notes what kubectl and helm are asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []

    def kubectl(self, *arguments: str, stdin: str | None = None, seconds: float = 300) -> str:
        self.calls.append(arguments)
        return ""

    def helm(self, *arguments: str, stdin: str | None = None, seconds: float = 600) -> str:
        self.calls.append(arguments)
        return ""


def test_it_can_be_removed_where_nothing_of_it_is_left() -> None:
    target = RecordingTarget()
    story.remove(Installation(target, lends_files=False))
    assert target.calls
    assert all("--ignore-not-found" in call for call in target.calls)
    # Asked for by its type, an AutellixCluster is an error where the API is not installed.
    assert not [call for call in target.calls if "axc" in call]
