"""What all models of the spec are made of: their base, the types of single fields, the error."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

_DNS_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"

Image = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[^\s]+$")]
ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=_DNS_NAME)]
DataKey = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
PullPolicy = Literal["Always", "IfNotPresent", "Never"]
Switch = Literal["Enabled", "Disabled"]
Milliseconds = Annotated[int, Field(ge=1, le=86_400_000)]
LabelValue = Annotated[str, Field(max_length=63)]
Size = Annotated[str, Field(max_length=16, pattern=r"^[1-9][0-9]*(Mi|Gi|Ti)$")]
"""A number of bytes, written with Mi, Gi or Ti."""


class InvalidSpec(ValueError):
    """The spec breaks a rule; the message names the field and what is allowed."""


class SpecModel(BaseModel):
    """A part of the spec: immutable, fields by their names in the resource, nothing unknown."""

    model_config = ConfigDict(alias_generator=to_camel, frozen=True, extra="forbid", strict=True)


class DisruptionBudget(SpecModel):
    """How many pods of a part may be away because a node is drained."""

    max_unavailable: Annotated[int, Field(ge=0, le=1000)] = 1


def refuse_doubles(names: Sequence[str], field: str) -> None:
    """Raises ValueError if a name occurs twice."""
    if doubled := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"{field} holds {min(doubled)} twice")


def size_in_bytes(size: str) -> int:
    """Bytes of a size written with Mi, Gi or Ti."""
    return int(size[:-2]) << {"Mi": 20, "Gi": 30, "Ti": 40}[size[-2:]]
