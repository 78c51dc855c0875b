"""What a cluster has around its pods: Prometheus, the network, registries."""

import ipaddress
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from autellix_operator.api.base import LabelValue, ObjectName, SpecModel, Switch

Labels = Annotated[Mapping[str, LabelValue], Field(max_length=16)]


class ObjectRef(SpecModel):
    """An object of the same namespace."""

    name: ObjectName


class Monitoring(SpecModel):
    """Objects of the Prometheus Operator."""

    monitors: Switch = "Disabled"
    alerts: Switch = "Disabled"
    labels: Labels = Field(default_factory=dict)
    trace_endpoint: Annotated[str, Field(min_length=8, max_length=512, pattern=r"^https?://[^\s@]+$")] | None = None
    interval_seconds: Annotated[int, Field(ge=1, le=3600)] = 30

    @property
    def wanted(self) -> bool:
        """Whether any object is to be made."""
        return "Enabled" in (self.monitors, self.alerts)


class Peer(SpecModel):
    """Somebody who may open connections: pods, or a range of addresses."""

    pod_labels: Labels | None = None
    namespace_labels: Labels | None = None
    cidr: Annotated[str, Field(max_length=43)] | None = None

    @field_validator("cidr")
    @classmethod
    def _is_a_range(cls, cidr: str | None) -> str | None:
        if cidr is None:
            return None
        try:
            if "/" not in cidr:
                raise ValueError
            ipaddress.ip_network(cidr, strict=False)
        except ValueError:
            raise ValueError('cidr must be a range of addresses, as "10.0.0.0/8"') from None
        return cidr

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.cidr is None) == (self.pod_labels is None and self.namespace_labels is None):
            raise ValueError("either cidr, or podLabels and namespaceLabels, must be given")
        return self


Peers = Annotated[tuple[Peer, ...], Field(max_length=16, strict=False)]


class NetworkPolicy(SpecModel):
    """Who may open connections to the pods."""

    mode: Switch = "Disabled"
    clients_from: Peers = ()
    metrics_from: Peers = ()
