"""Where the demo and the end-to-end tests run: a lab of our own, or a cluster that the person names.

``KUBE_CONTEXT`` names a context of the person's kubeconfig. A current context is never used by itself: what is done
here installs and deletes things, and must not happen to a cluster by accident.
"""

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from onenode.binaries import binary
from onenode.commands import output
from onenode.errors import OnenodeError
from onenode.images import IMAGES
from onenode.lab import Lab

CONTEXT_VARIABLE = "KUBE_CONTEXT"
_FORWARDING = re.compile(r"Forwarding from (127\.0\.0\.1:\d+) ->")


class Target(Protocol):
    """A Kubernetes to work on. Methods raise OnenodeError with a message for a person."""

    def kubectl(self, *arguments: str, stdin: str | None = None, seconds: float = 300) -> str:
        """What kubectl prints."""

    def helm(self, *arguments: str, stdin: str | None = None, seconds: float = 600) -> str:
        """What helm prints."""

    def image(self, name: str) -> str:
        """The image that the cluster has under one of the names in IMAGES."""

    def reach(self, namespace: str, resource: str, port: int) -> AbstractContextManager[str]:
        """The base URL of ``service/NAME`` or ``pod/NAME``, usable from this process while the context lasts."""


class LabTarget:
    """A lab that runs, in whose network this process is (``Lab.enter_network``)."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def kubectl(self, *arguments: str, stdin: str | None = None, seconds: float = 300) -> str:
        """What kubectl prints."""
        return self._lab.kubectl(*arguments, stdin=stdin, seconds=seconds)

    def helm(self, *arguments: str, stdin: str | None = None, seconds: float = 600) -> str:
        """What helm prints."""
        return self._lab.helm(*arguments, stdin=stdin, seconds=seconds)

    def image(self, name: str) -> str:
        """The image as it was imported."""
        return IMAGES[name]

    @contextlib.contextmanager
    def reach(self, namespace: str, resource: str, port: int) -> Iterator[str]:
        """The address of the Service or pod itself, which this network has a route to."""
        kind = resource.partition("/")[0]
        path = {"service": "{.spec.clusterIP}", "pod": "{.status.podIP}"}[kind]
        address = self.kubectl("get", resource, "--namespace", namespace, "--output", f"jsonpath={path}")
        yield f"http://{address}:{port}"


class ContextTarget:
    """A context of the person's kubeconfig. ``images`` are names that its nodes can pull."""

    def __init__(self, context: str, images: Mapping[str, str]) -> None:
        self._context = context
        self._images = images

    def kubectl(self, *arguments: str, stdin: str | None = None, seconds: float = 300) -> str:
        """What kubectl prints."""
        return _run([*self._kubectl_command(), *arguments], stdin, seconds)

    def helm(self, *arguments: str, stdin: str | None = None, seconds: float = 600) -> str:
        """What helm prints."""
        return _run([str(binary("helm")), f"--kube-context={self._context}", *arguments], stdin, seconds)

    def image(self, name: str) -> str:
        """The image that the person named."""
        return self._images[name]

    @contextlib.contextmanager
    def reach(self, namespace: str, resource: str, port: int) -> Iterator[str]:
        """A port of this machine that kubectl forwards for as long as the context lasts."""
        forward = ["port-forward", "--namespace", namespace, "--address=127.0.0.1", resource, f":{port}"]
        with subprocess.Popen(
            [*self._kubectl_command(), *forward], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                assert process.stderr is not None
                found = _FORWARDING.search(process.stdout.readline())
                if found is None:
                    raise OnenodeError(f"kubectl {' '.join(forward)} failed: {process.stderr.read().strip()}")
                yield f"http://{found[1]}"
            finally:
                process.terminate()

    def _kubectl_command(self) -> list[str]:
        return [*_kubectl(), f"--context={self._context}"]


def chosen_context(environment: Mapping[str, str] = os.environ, *, installs: bool = True) -> ContextTarget | None:
    """The person's own cluster, if the environment names one; None means a lab.

    Without ``installs`` nothing will be installed there, so images need no name.
    Raises OnenodeError when the context does not exist or an image is not named.
    """
    context = environment.get(CONTEXT_VARIABLE)
    if not context:
        return None
    _check_context(context)
    return ContextTarget(context, named_images(environment) if installs else {})


def named_images(environment: Mapping[str, str]) -> dict[str, str]:
    """The images that the environment names for a cluster of one's own, which cannot import archives from here."""
    variables = {name: f"AUTELLIX_{name.upper()}_IMAGE" for name in IMAGES}
    missing = [variable for variable in variables.values() if not environment.get(variable)]
    if missing:
        raise OnenodeError(
            f"{CONTEXT_VARIABLE} is set, so the images must be named as that cluster can pull them: "
            f"set {', '.join(missing)} (`make images` builds archives to push from)"
        )
    return {name: environment[variable] for name, variable in variables.items()}


def _check_context(context: str) -> None:
    known = _run([*_kubectl(), "config", "get-contexts", "--output=name"], None, 30).split()
    if context not in known:
        there_are = ", ".join(known) or "none"
        raise OnenodeError(f"{CONTEXT_VARIABLE}: no context is called {context!r}; there are {there_are}")


def _run(command: Sequence[str], stdin: str | None, seconds: float) -> str:
    return output(command, what=" ".join(command[1:]), stdin=stdin, seconds=seconds)


def _kubectl() -> list[str]:
    return [str(binary("kube")), "kubectl"]
