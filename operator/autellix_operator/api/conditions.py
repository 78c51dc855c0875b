"""Condition types and reasons: the closed lists that status, Events and documentation share.

Owner of all of them is this operator. All five conditions are present from the first visit of a resource on, and all
speak of its newest generation: old pods that still serve during an update do not make one True.
"""

from enum import StrEnum


class ConditionType(StrEnum):
    """What a condition speaks of."""

    READY = "Ready"
    """The three parts are ready: calls are served as the newest spec says. Takes reason and message of the first part
    that is not."""
    ENGINES_READY = "EnginesReady"
    """All engines that are wanted serve, from the newest pod template."""
    CONTROLLER_READY = "ControllerReady"
    """All controllers that are wanted serve, from the newest pod template."""
    PROCESS_TABLE_READY = "ProcessTableReady"
    """All etcd members serve. An etcd that runs elsewhere is not observed: its controllers report on it."""
    PROGRESSING = "Progressing"
    """Pods are on their way to what the newest spec wants. False when they have arrived, or will not without help."""


class Reason(StrEnum):
    """Why a condition is what it is."""

    AVAILABLE = "Available"
    """All that is wanted serves."""
    STARTING = "Starting"
    """Pods are being made or are starting."""
    UPDATING = "Updating"
    """Pods of an older template are being replaced."""
    SCALED_TO_ZERO = "ScaledToZero"
    """No engine is wanted, so none serves."""
    EXTERNAL = "External"
    """The etcd runs elsewhere."""
    INVALID_SPEC = "InvalidSpec"
    """The spec breaks a rule. Nothing is changed until it is corrected."""
    APPLY_REFUSED = "ApplyRefused"
    """The API server refused an object that the spec leads to."""
    NAME_CONFLICT = "NameConflict"
    """An object that is not ours has a name that we need."""
    SECRET_MISSING = "SecretMissing"
    """A Secret that the spec refers to, or its key, does not exist."""
    IMAGE_PULL_FAILED = "ImagePullFailed"
    """A node cannot get an image."""
    CONTAINER_CONFIG_ERROR = "ContainerConfigError"
    """A container cannot be made from its pod's description."""
    CRASH_LOOP = "CrashLoop"
    """A container ends again and again."""
    OUT_OF_MEMORY = "OutOfMemory"
    """A container was ended because it passed its memory limit."""
    UNSCHEDULABLE = "Unschedulable"
    """No node can take a pod."""
    CLAIM_PENDING = "ClaimPending"
    """A volume claim has no volume."""
    PODS_REFUSED = "PodsRefused"
    """The API server refuses to make pods: quota, pod security or another admission rule."""


#: Reasons that do not go away without help. Their Events are warnings.
FAILURES = frozenset(
    {
        Reason.INVALID_SPEC,
        Reason.APPLY_REFUSED,
        Reason.NAME_CONFLICT,
        Reason.SECRET_MISSING,
        Reason.IMAGE_PULL_FAILED,
        Reason.CONTAINER_CONFIG_ERROR,
        Reason.CRASH_LOOP,
        Reason.OUT_OF_MEMORY,
        Reason.UNSCHEDULABLE,
        Reason.CLAIM_PENDING,
        Reason.PODS_REFUSED,
    }
)
