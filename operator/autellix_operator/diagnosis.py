"""Why pods do not run: the root cause in Kubernetes' objects, as one reason and one sentence. Pure functions."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from autellix_operator.api.conditions import Reason
from autellix_operator.last_words import last_words

Object = Mapping[str, Any]

_IMAGE_REASONS: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
    }
)
_CONFIG_REASONS: Final = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "PreCreateHookError",
        "PostStartHookError",
    }
)
#: Between two attempts to pull the kubelet puts this before what came of the last one.
_PULLED_LATER: Final = re.compile(r'^Back-off pulling image "[^"]*": (?:\w+: )?')
#: The kubelet starts its back-off anew for a container that has run for so long.
_RESTARTS_FORGOTTEN: Final = timedelta(minutes=10)
#: The last lines of a program's output are enough; the log has the rest.
_MESSAGE_LENGTH: Final = 600


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A cause that does not go away by itself."""

    reason: Reason
    message: str


def diagnose(pods: Iterable[Object], claims: Iterable[Object], now: datetime) -> Diagnosis | None:
    """What keeps the newest failing one of ``pods`` from running; None if nothing is known to be wrong.

    ``claims`` are the volume claims of the same component. The answer does not change while a container that ends
    again and again happens to be running, so that status and Events stay calm.
    """
    newest_first = sorted(
        pods, key=lambda pod: (pod["metadata"].get("creationTimestamp", ""), pod["metadata"]["name"]), reverse=True
    )
    waiting = [claim for claim in claims if claim.get("status", {}).get("phase") == "Pending"]
    for pod in newest_first:
        if found := _containers(pod, now) or _scheduling(pod, waiting):
            return found
    return None


def refused_pods(workload: Object) -> Diagnosis | None:
    """Whether the API server refuses a Deployment's pods: by quota, pod security or another rule of admission."""
    for condition in workload.get("status", {}).get("conditions", ()):
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            return Diagnosis(Reason.PODS_REFUSED, _shortened(condition.get("message", "pods cannot be made")))
    return None


def _containers(pod: Object, now: datetime) -> Diagnosis | None:
    status = pod.get("status", {})
    for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        if found := _waiting(pod, container) or _ended(pod, container, now):
            return found
    return None


def _waiting(pod: Object, container: Object) -> Diagnosis | None:
    waiting = container.get("state", {}).get("waiting", {})
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    who = _who(pod, container)
    if reason in _IMAGE_REASONS:
        # The same words while it tries and while it waits, so that the status stays calm.
        said = _shortened(_PULLED_LATER.sub("", message) or reason)
        return Diagnosis(Reason.IMAGE_PULL_FAILED, f"{who}: image {container['image']}: {said}")
    if reason in _CONFIG_REASONS:
        missing = "secret" in message.lower() and ("not found" in message or "couldn't find key" in message)
        cause = Reason.SECRET_MISSING if missing else Reason.CONTAINER_CONFIG_ERROR
        return Diagnosis(cause, f"{who}: {_shortened(message or reason)}")
    return None


def _ended(pod: Object, container: Object, now: datetime) -> Diagnosis | None:
    last = container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated")
    if container.get("ready") or not last or (last.get("exitCode") == 0 and last.get("reason") == "Completed"):
        return None
    if _runs_well(container, now):
        return None
    who = _who(pod, container)
    if last.get("reason") == "OOMKilled":
        return Diagnosis(Reason.OUT_OF_MEMORY, f"{who}: passed its memory limit and was ended")
    if not container.get("restartCount"):
        return None
    ending = f"{who}: ends with exit code {last.get('exitCode')}"
    said = _shortened(last_words(str(last.get("message") or "")))
    return Diagnosis(Reason.CRASH_LOOP, f"{ending}: {said}" if said else ending)


def _runs_well(container: Object, now: datetime) -> bool:
    """Whether a container that ended before has got over it: it has started up and runs for so long that Kubernetes
    counts its restarts anew."""
    running = container.get("state", {}).get("running", {})
    if not container.get("started") or "startedAt" not in running:
        return False
    return now - datetime.fromisoformat(running["startedAt"]) > _RESTARTS_FORGOTTEN


def _scheduling(pod: Object, waiting_claims: list[Object]) -> Diagnosis | None:
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            message = _shortened(condition.get("message", "no node can take it"))
            if waiting_claims and "persistentvolumeclaim" in message.lower().replace(" ", ""):
                names = ", ".join(sorted(claim["metadata"]["name"] for claim in waiting_claims))
                return Diagnosis(Reason.CLAIM_PENDING, f"volume claim {names} has no volume: {message}")
            return Diagnosis(Reason.UNSCHEDULABLE, f"pod {pod['metadata']['name']}: {message}")
    return None


def _who(pod: Object, container: Object) -> str:
    return f"pod {pod['metadata']['name']}, container {container['name']}"


def _shortened(message: str) -> str:
    """The message on one line; of a long one the end, where programs say what went wrong."""
    line = " ".join(message.split())
    return line if len(line) <= _MESSAGE_LENGTH else "… " + line[-_MESSAGE_LENGTH:]
