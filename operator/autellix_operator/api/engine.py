"""The model and the engines."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import Field, field_validator, model_validator

from autellix_operator.api.arguments import reserved_argument
from autellix_operator.api.base import (
    DataKey,
    DisruptionBudget,
    Image,
    ObjectName,
    PullPolicy,
    Size,
    SpecModel,
    refuse_doubles,
    size_in_bytes,
)

#: Variables of the engine that the operator sets; those that begin with AUTELLIX_ are its own as well.
RESERVED_VARIABLES: Final = ("HOME", "TMPDIR", "HF_HOME", "HF_TOKEN")
_MODEL_NAME = r"^[A-Za-z0-9/._][A-Za-z0-9/._:@+-]*$"

Argument = Annotated[str, Field(min_length=1, max_length=512)]


class TokenSecretRef(SpecModel):
    """A key of a Secret that holds an access token."""

    name: ObjectName
    key: DataKey = "token"


class Cache(SpecModel):
    """Where downloaded models are kept."""

    claim_name: ObjectName | None = None
    ephemeral_size: Size | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.claim_name is None) == (self.ephemeral_size is None):
            raise ValueError("exactly one of claimName and ephemeralSize must be given")
        return self


class Model(SpecModel):
    """The language model."""

    name: Annotated[str, Field(min_length=1, max_length=512, pattern=_MODEL_NAME)]
    served_name: Annotated[str, Field(min_length=1, max_length=256, pattern=_MODEL_NAME)] | None = None
    revision: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[A-Za-z0-9._][A-Za-z0-9/._-]*$")] | None = (
        None
    )
    token_secret_ref: TokenSecretRef | None = None
    weights_size: Size | None = None
    cache: Cache | None = None

    @property
    def public_name(self) -> str:
        """What clients call the model."""
        return self.served_name or self.name


class Gpu(SpecModel):
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
    memory: Size | None = None


class Update(SpecModel):
    """How engines are replaced."""

    max_surge: Annotated[int, Field(ge=0, le=1000)] = 1
    max_unavailable: Annotated[int, Field(ge=0, le=1000)] = 0

    @model_validator(mode="after")
    def _can_make_progress(self) -> Self:
        if self.max_surge + self.max_unavailable == 0:
            raise ValueError("maxSurge and maxUnavailable must not both be 0")
        return self


class Swap(SpecModel):
    """KV cache of live programs in host memory."""

    size: Annotated[str, Field(max_length=16, pattern=r"^([1-9][0-9]*(Mi|Gi|Ti)|[1-8]?[1-9]%|[1-9]0%)$")]
    prefetch_seconds: Annotated[int, Field(ge=0, le=3600)] = 0

    @property
    def percent(self) -> int:
        """Its share of the container's memory limit; 0 where the size is one in bytes."""
        return int(self.size[:-1]) if self.size.endswith("%") else 0


class KeyRef(SpecModel):
    """A key of a Secret or of a ConfigMap."""

    name: ObjectName
    key: DataKey


class ValueFrom(SpecModel):
    """Where the value of a variable stands."""

    secret_key_ref: KeyRef | None = None
    config_map_key_ref: KeyRef | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.secret_key_ref is None) == (self.config_map_key_ref is None):
            raise ValueError("exactly one of secretKeyRef and configMapKeyRef must be given")
        return self


class Variable(SpecModel):
    """A variable of the engine's environment."""

    name: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    value: Annotated[str, Field(max_length=32_768)] | None = None
    value_from: ValueFrom | None = None

    @field_validator("name")
    @classmethod
    def _leave_reserved_variables(cls, name: str) -> str:
        if name in RESERVED_VARIABLES or name.startswith("AUTELLIX_"):
            raise ValueError(f"env must not hold {name}: the system sets it")
        return name

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.value is None) == (self.value_from is None):
            raise ValueError("exactly one of value and valueFrom must be given")
        return self


class Engine(SpecModel):
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
    memory: Size | None = None
    shared_memory_size: Size | None = None
    extra_args: Annotated[tuple[Argument, ...], Field(max_length=64, strict=False)] = ()
    env: Annotated[tuple[Variable, ...], Field(max_length=64, strict=False)] = ()
    startup_timeout_seconds: Annotated[int, Field(ge=30, le=86_400)] = 1800
    drain_seconds: Annotated[int, Field(ge=0, le=86_400)] = 60
    update: Update = Update()
    service_account_name: ObjectName | None = None
    pod_disruption_budget: DisruptionBudget = DisruptionBudget()
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

    @field_validator("env")
    @classmethod
    def _set_each_once(cls, variables: tuple[Variable, ...]) -> tuple[Variable, ...]:
        refuse_doubles([each.name for each in variables], "env")
        return variables

    @model_validator(mode="after")
    def _swap_into_a_share_of_something(self) -> Self:
        if self.swap and self.swap.percent and self.memory is None:
            raise ValueError(f"swap.size, {self.swap.size}, needs memory, of which it is a share")
        return self

    @property
    def swap_bytes(self) -> int:
        """Host memory for swapped KV cache."""
        if self.swap is None:
            return 0
        if self.memory is not None and self.swap.percent:
            return -(-size_in_bytes(self.memory) * self.swap.percent // 100)
        return size_in_bytes(self.swap.size)

    @property
    def devices(self) -> int:
        """Devices that one copy of the model is split over."""
        return self.gpu.count if self.gpu else self.tensor_parallel_size or 1
