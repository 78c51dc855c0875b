"""A Kubernetes that only notes what kubectl and helm are asked for."""

import json
from collections.abc import Mapping

from onenode.target import ContextTarget


class RecordingTarget(ContextTarget):
    """``namespaces`` are those that there are, with their labels; ``images`` are names as a person gives them."""

    def __init__(
        self, *, namespaces: Mapping[str, Mapping[str, str]] | None = None, images: Mapping[str, str] | None = None
    ) -> None:
        self._namespaces = namespaces or {}
        self._names = images or {}
        self.calls: list[tuple[str, ...]] = []
        self.inputs: list[str | None] = []

    def kubectl(self, *arguments: str, stdin: str | None = None, seconds: float = 300) -> str:
        """Answers for namespaces alone."""
        self._note(arguments, stdin)
        if arguments[:2] == ("get", "namespace") and arguments[2] in self._namespaces:
            return json.dumps({"metadata": {"name": arguments[2], "labels": self._namespaces[arguments[2]]}})
        return ""

    def helm(self, *arguments: str, stdin: str | None = None, seconds: float = 600) -> str:
        """Prints nothing."""
        self._note(arguments, stdin)
        return ""

    def image(self, name: str) -> str:
        """The given name, or one of a registry that is not there."""
        return self._names.get(name, f"registry.example/{name}:1")

    def _note(self, arguments: tuple[str, ...], stdin: str | None) -> None:
        self.calls.append(arguments)
        self.inputs.append(stdin)
