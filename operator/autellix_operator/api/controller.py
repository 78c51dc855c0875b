"""Routing and the controllers."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from autellix_operator.api.base import (
    DataKey,
    DisruptionBudget,
    Image,
    ObjectName,
    PullPolicy,
    SpecModel,
    Switch,
    refuse_doubles,
)

Seconds = Annotated[int, Field(ge=1, le=604_800)]
HeaderName = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9-]+$")]
Mebibytes = Annotated[int, Field(ge=1, le=2047)]


class ApiKeysSecretRef(SpecModel):
    """A key of a Secret that lists API keys."""

    name: ObjectName
    key: DataKey = "keys"


class RoutingPolicy(StrEnum):
    """Ways to choose an engine for a call."""

    AUTELLIX = "Autellix"
    LEAST_USED = "LeastUsed"
    ROUND_ROBIN = "RoundRobin"
    PREFIX_HASH = "PrefixHash"


class Routing(SpecModel):
    """How controllers choose an engine."""

    policy: Annotated[RoutingPolicy, Field(strict=False)] = RoutingPolicy.AUTELLIX
    locality_threshold_tokens: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    spill_ratio_percent: Annotated[int, Field(ge=100, le=10_000)] = 150
    spill_calls: Annotated[int, Field(ge=1, le=1_000_000)] = 8
    spill_tokens: Annotated[int, Field(ge=1, le=1_000_000_000)] = 4096


class Service(SpecModel):
    """The Service for clients."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    port: Annotated[int, Field(ge=1, le=65_535)] = 80
    annotations: Annotated[Mapping[str, Annotated[str, Field(max_length=4096)]], Field(max_length=64)] = Field(
        default_factory=dict
    )


class Limits(SpecModel):
    """What one controller takes."""

    max_calls: Annotated[int, Field(ge=1, le=1_000_000)] = 4096
    engine_calls: Annotated[int, Field(ge=1, le=1_000_000)] = 1024
    queue_calls: Annotated[int, Field(ge=0, le=1_000_000)] = 1024
    requests_mebibytes: Annotated[int, Field(ge=1, le=1_048_576)] = 256
    request_mebibytes: Mebibytes = 32
    response_mebibytes: Mebibytes = 64


class Deadlines(SpecModel):
    """How long controllers wait."""

    body_seconds: Seconds = 60
    connect_seconds: Seconds = 5
    queue_seconds: Seconds = 30
    hold_seconds: Annotated[int, Field(ge=0, le=604_800)] = 0
    first_byte_seconds: Seconds = 600
    idle_seconds: Seconds = 120
    total_seconds: Seconds = 3600

    @model_validator(mode="after")
    def _begin_before_the_end(self) -> Self:
        if self.first_byte_seconds > self.total_seconds:
            raise ValueError("firstByteSeconds must not exceed totalSeconds")
        if self.hold_seconds > self.total_seconds:
            raise ValueError("holdSeconds must not exceed totalSeconds")
        return self


class Controller(SpecModel):
    """The controllers."""

    replicas: Annotated[int, Field(ge=1, le=100)] = 2
    image: Image | None = None
    image_pull_policy: PullPolicy = "IfNotPresent"
    session_timeout_seconds: Annotated[int, Field(ge=1, le=604_800)] = 3600
    api_keys_secret_ref: ApiKeysSecretRef | None = None
    session_headers: Annotated[tuple[HeaderName, ...], Field(max_length=16, strict=False)] = ()
    prefix_cache_isolation: Switch = "Disabled"
    drain_seconds: Annotated[int, Field(ge=1, le=86_400)] = 120
    limits: Limits = Limits()
    deadlines: Deadlines = Deadlines()
    service: Service = Service()
    service_account_name: ObjectName | None = None
    pod_disruption_budget: DisruptionBudget = DisruptionBudget()
    template: Mapping[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _room_for_held_calls(self) -> Self:
        if self.deadlines.hold_seconds and not self.limits.queue_calls:
            raise ValueError(
                "deadlines.holdSeconds needs limits.queueCalls of at least 1, since calls are held in the queue"
            )
        return self

    @field_validator("session_headers")
    @classmethod
    def _name_each_once(cls, headers: tuple[str, ...]) -> tuple[str, ...]:
        refuse_doubles(headers, "sessionHeaders")
        return headers
