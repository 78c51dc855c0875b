"""Condition types and reasons: the closed lists that status, Events and documentation share.

Owner of all of them is this operator. All but MonitoringReady are present from the first visit of a resource on, and
all speak of its newest generation: old pods that still serve during an update do not make one True.
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
    """All etcd members serve, and controllers reach them. Whether an etcd that runs elsewhere serves, controllers say:
    it is Unknown until one of them has, which is of no influence on Ready."""
    PROGRESSING = "Progressing"
    """Pods are on their way to what the newest spec wants. False when they have arrived, or will not without help."""
    DEGRADED = "Degraded"
    """Something is wrong that does not go away by itself, whether or not calls are served meanwhile."""
    MONITORING_READY = "MonitoringReady"
    """The objects of the Prometheus Operator that the spec wants are there. Present only while the spec wants any, and
    of no influence on Ready."""


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
    """The etcd runs elsewhere, and all controllers that could be asked reach it."""
    NOT_REPORTED = "NotReported"
    """The etcd runs elsewhere, and no controller has said yet whether it reaches it."""
    TABLE_UNREACHABLE = "TableUnreachable"
    """A controller does not reach the etcd: its address, network, certificate or password, or the etcd itself."""
    INVALID_SPEC = "InvalidSpec"
    """The spec breaks a rule. Nothing is changed until it is corrected."""
    APPLY_REFUSED = "ApplyRefused"
    """The API server refused an object that the spec leads to."""
    NAME_CONFLICT = "NameConflict"
    """An object that is not ours has a name that we need, or is left of a former cluster or process table."""
    SECRET_MISSING = "SecretMissing"
    """A Secret that the spec refers to, or its key, does not exist."""
    CONFIG_MAP_MISSING = "ConfigMapMissing"
    """A ConfigMap that the spec refers to, or its key, does not exist."""
    CLAIM_MISSING = "ClaimMissing"
    """A volume claim that the spec refers to does not exist."""
    API_MISSING = "ApiMissing"
    """Kubernetes has not the API that the spec asks for: the Prometheus Operator is not installed."""
    PAUSED = "Paused"
    """The annotation autellix.dev/paused is set: nothing is changed, and a new spec waits."""
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
        Reason.CONFIG_MAP_MISSING,
        Reason.CLAIM_MISSING,
        Reason.TABLE_UNREACHABLE,
        Reason.IMAGE_PULL_FAILED,
        Reason.CONTAINER_CONFIG_ERROR,
        Reason.CRASH_LOOP,
        Reason.OUT_OF_MEMORY,
        Reason.UNSCHEDULABLE,
        Reason.CLAIM_PENDING,
        Reason.PODS_REFUSED,
    }
)
