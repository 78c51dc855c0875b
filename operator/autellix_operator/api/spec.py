"""The spec of an AutellixCluster as typed, immutable models.

The CRD is the API: admission checks all of this first. The operator checks again, for a resource may have been stored
before a rule was added, and takes its defaults from the same place in the spec. A test holds both sides together:
names, types, bounds, enumerations and defaults.
"""

import itertools
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.alias_generators import to_camel

GROUP: Final = "autellix.dev"
VERSION: Final = "v1alpha1"
KIND: Final = "AutellixCluster"
PLURAL: Final = "autellixclusters"

#: Names of pods and of their revisions are made from the cluster's name and may have 63 characters.
MAX_NAME_LENGTH: Final = 40

#: Arguments of the engine that other fields of the spec or the system itself set, or that break what it relies on.
RESERVED_ARGUMENTS: Final = (
    "--model",
    "--served-model-name",
    "--revision",
    "--host",
    "--port",
    "--uds",
    "--root-path",
    "--enable-ssl-refresh",
    "--grpc",
    "--grpc-port",
    "--omni",
    "--config",
    "--headless",
    "--api-server-count",
    "-asc",
    "--enable-elastic-ep",
    "--api-key",
    "--middleware",
    "--max-model-len",
    "--max-num-seqs",
    "--tensor-parallel-size",
    "-tp",
    "--gpu-memory-utilization",
    "--scheduling",
    "--scheduling-policy",
    "--scheduler-cls",
    "--shutdown-timeout",
    "--additional-config",
    "--swap",
    "--kv-transfer-config",
    "--help",
    "-h",
)
#: Beginnings of such arguments: all that begin like it are meant.
RESERVED_FAMILIES: Final = ("--ssl-", "--data-parallel-", "--kv-offloading-", "-dp")

_DNS_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
_MODEL_NAME = r"^[A-Za-z0-9/._][A-Za-z0-9/._:@+-]*$"

Image = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[^\s]+$")]
ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=_DNS_NAME)]
SecretKey = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
PullPolicy = Literal["Always", "IfNotPresent", "Never"]
Milliseconds = Annotated[int, Field(ge=1, le=86_400_000)]
Argument = Annotated[str, Field(min_length=1, max_length=512)]
Endpoint = Annotated[
    str, Field(min_length=3, max_length=260, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?:[1-9][0-9]{0,4}$")
]


class InvalidSpec(ValueError):
    """The spec breaks a rule; the message names the field and what is allowed."""


class Policy(StrEnum):
    """Orders in which engines serve calls."""

    ATLAS = "Atlas"
    PLAS = "Plas"
    MLFQ = "Mlfq"
    FCFS = "Fcfs"


class _Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, frozen=True, extra="forbid", strict=True)


class TokenSecretRef(_Model):
    """A key of a Secret that holds an access token."""

    name: ObjectName
    key: SecretKey = "token"


class ApiKeysSecretRef(_Model):
    """A key of a Secret that lists API keys."""

    name: ObjectName
    key: SecretKey = "keys"


class Model(_Model):
    """The language model."""

    name: Annotated[str, Field(min_length=1, max_length=512, pattern=_MODEL_NAME)]
    served_name: Annotated[str, Field(min_length=1, max_length=256, pattern=_MODEL_NAME)] | None = None
    revision: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[A-Za-z0-9._][A-Za-z0-9/._-]*$")] | None = (
        None
    )
    token_secret_ref: TokenSecretRef | None = None

    @property
    def public_name(self) -> str:
        """What clients call the model."""
        return self.served_name or self.name


class Gpu(_Model):
    """GPUs of one engine."""

    count: Annotated[int, Field(ge=1, le=64)] = 1
    resource_name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=253,
            pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        ),
    ] = "nvidia.com/gpu"


class Update(_Model):
    """How engines are replaced."""

    max_surge: Annotated[int, Field(ge=0, le=1000)] = 1
    max_unavailable: Annotated[int, Field(ge=0, le=1000)] = 0

    @model_validator(mode="after")
    def _can_make_progress(self) -> Self:
        if self.max_surge + self.max_unavailable == 0:
            raise ValueError("maxSurge and maxUnavailable must not both be 0")
        return self


class Swap(_Model):
    """KV cache of live programs in host memory."""

    size: Annotated[str, Field(max_length=16, pattern=r"^([1-9][0-9]*(Mi|Gi|Ti)|[1-8]?[1-9]%|[1-9]0%)$")]
    prefetch_seconds: Annotated[int, Field(ge=0, le=3600)] = 0


class Engine(_Model):
    """The engines."""

    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    image: Image | None = None
    image_pull_policy: PullPolicy = "IfNotPresent"
    gpu: Gpu | None = None
    tensor_parallel_size: Annotated[int, Field(ge=1, le=64)] | None = None
    max_model_length: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    max_sequences: Annotated[int, Field(ge=1, le=65_536)] | None = None
    gpu_memory_utilization_percent: Annotated[int, Field(ge=1, le=99)] | None = None
    swap: Swap | None = None
    extra_args: Annotated[tuple[Argument, ...], Field(max_length=64, strict=False)] = ()
    startup_timeout_seconds: Annotated[int, Field(ge=30, le=86_400)] = 1800
    drain_seconds: Annotated[int, Field(ge=0, le=86_400)] = 60
    update: Update = Update()
    template: Mapping[str, Any] = Field(default_factory=dict)

    @field_validator("extra_args")
    @classmethod
    def _leave_reserved_arguments(cls, arguments: tuple[str, ...]) -> tuple[str, ...]:
        for argument in arguments:
            if reserved := reserved_argument(argument):
                raise ValueError(f"extraArgs must not hold {argument}: the system sets {reserved}")
        return arguments

    @model_validator(mode="after")
    def _use_all_gpus(self) -> Self:
        if self.gpu and self.tensor_parallel_size and self.tensor_parallel_size != self.gpu.count:
            raise ValueError(
                f"tensorParallelSize must equal gpu.count, {self.gpu.count}, not {self.tensor_parallel_size}"
            )
        return self

    @property
    def devices(self) -> int:
        """Devices that one copy of the model is split over."""
        return self.gpu.count if self.gpu else self.tensor_parallel_size or 1


class Scheduling(_Model):
    """Settings of the engines' scheduler."""

    policy: Annotated[Policy, Field(strict=False)] = Policy.PLAS
    queue_bounds_milliseconds: Annotated[tuple[Milliseconds, ...], Field(max_length=63, strict=False)] | None = None
    """None: the engines choose, and follow what programs are served."""
    quanta_milliseconds: Annotated[tuple[Milliseconds, ...], Field(max_length=63, strict=False)] | None = None
    starvation_ratio_percent: Annotated[int, Field(ge=1, le=1_000_000)] = 400
    starvation_floor_milliseconds: Milliseconds = 1000
    steps_per_decision: Annotated[int, Field(ge=1, le=1000)] = 1
    spare_calls: Annotated[int, Field(ge=0, le=1000)] = 0
    max_preemptions_per_step: Annotated[int, Field(ge=0, le=1000)] = 4
    minimum_run_milliseconds: Annotated[int, Field(ge=0, le=86_400_000)] | None = None
    program_idle_seconds: Annotated[int, Field(ge=1, le=2_592_000)] | None = None
    max_programs: Annotated[int, Field(ge=1, le=10_000_000)] = 50_000

    @field_validator("queue_bounds_milliseconds")
    @classmethod
    def _ascend(cls, bounds: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if bounds and any(low >= high for low, high in itertools.pairwise(bounds)):
            raise ValueError("queueBoundsMilliseconds must ascend, without equal items")
        return bounds

    @model_validator(mode="after")
    def _one_quantum_for_each_bound(self) -> Self:
        if self.quanta_milliseconds is not None and (
            self.queue_bounds_milliseconds is None
            or len(self.quanta_milliseconds) != len(self.queue_bounds_milliseconds)
        ):
            raise ValueError("quantaMilliseconds must have as many items as queueBoundsMilliseconds")
        return self


class Routing(_Model):
    """How controllers choose an engine."""

    locality_threshold_tokens: Annotated[int, Field(ge=0, le=10_000_000)] = 0


class Service(_Model):
    """The Service for clients."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    port: Annotated[int, Field(ge=1, le=65_535)] = 80
    annotations: Annotated[Mapping[str, Annotated[str, Field(max_length=4096)]], Field(max_length=64)] = Field(
        default_factory=dict
    )


class Controller(_Model):
    """The controllers."""

    replicas: Annotated[int, Field(ge=1, le=100)] = 2
    image: Image | None = None
    image_pull_policy: PullPolicy = "IfNotPresent"
    session_timeout_seconds: Annotated[int, Field(ge=1, le=604_800)] = 3600
    api_keys_secret_ref: ApiKeysSecretRef | None = None
    service: Service = Service()
    template: Mapping[str, Any] = Field(default_factory=dict)


class Storage(_Model):
    """The volume of one etcd member."""

    size: Annotated[str, Field(max_length=16, pattern=r"^[1-9][0-9]*(Mi|Gi|Ti)$")] = "2Gi"
    class_name: ObjectName | None = None

    @field_validator("size")
    @classmethod
    def _holds_a_write_ahead_log(cls, size: str) -> str:
        if size_in_bytes(size) < 512 << 20:
            raise ValueError("size must be at least 512Mi")
        return size


class ManagedEtcd(_Model):
    """An etcd that the operator runs."""

    replicas: Literal[1, 3] = 1
    image: Image | None = None
    image_pull_policy: PullPolicy = "IfNotPresent"
    storage: Storage = Storage()


class Etcd(_Model):
    """Where the process table is."""

    managed: ManagedEtcd | None = None
    endpoints: Annotated[tuple[Endpoint, ...], Field(min_length=1, max_length=9, strict=False)] | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.managed is None) == (self.endpoints is None):
            raise ValueError("exactly one of managed and endpoints must be given")
        return self


class ProcessTable(_Model):
    """The process table."""

    etcd: Etcd = Etcd(managed=ManagedEtcd())


class Spec(_Model):
    """What is wanted of an AutellixCluster."""

    model: Model
    engine: Engine = Engine()
    scheduling: Scheduling = Scheduling()
    routing: Routing = Routing()
    controller: Controller = Controller()
    process_table: ProcessTable = ProcessTable()

    @model_validator(mode="after")
    def _engines_remember_what_controllers_do(self) -> Self:
        idle, session = self.scheduling.program_idle_seconds, self.controller.session_timeout_seconds
        if idle is not None and idle < session:
            raise ValueError(
                f"scheduling.programIdleSeconds must not be less than controller.sessionTimeoutSeconds, {session}, "
                f"not {idle}"
            )
        return self


def parse_spec(resource: Mapping[str, Any]) -> Spec:
    """Reads and checks the spec of a resource. Raises InvalidSpec, naming the first field that is wrong."""
    name = resource["metadata"]["name"]
    if len(name) > MAX_NAME_LENGTH or not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
        raise InvalidSpec(
            f"metadata.name: must start with a letter, hold only lower-case letters, digits and '-', and have at most "
            f"{MAX_NAME_LENGTH} characters"
        )
    try:
        return Spec.model_validate(resource.get("spec", {}))
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(["spec", *(str(part) for part in first["loc"])])
        raise InvalidSpec(f"{path}: {first['msg'].removeprefix('Value error, ')}") from error


def reserved_argument(argument: str) -> str | None:
    """The reserved argument that an argument sets, however it is written: in full or abbreviated, with "_", "=" or
    "."."""
    if not argument.startswith("-"):
        return None
    flag = argument.split("=")[0].split(".")[0].replace("_", "-")
    return next(
        (reserved for reserved in RESERVED_ARGUMENTS if reserved.startswith(flag)),
        next((f"{family}*" for family in RESERVED_FAMILIES if flag.startswith(family)), None),
    )


def size_in_bytes(size: str) -> int:
    """Bytes of a size written with Mi, Gi or Ti."""
    return int(size[:-2]) << {"Mi": 20, "Gi": 30, "Ti": 40}[size[-2:]]
