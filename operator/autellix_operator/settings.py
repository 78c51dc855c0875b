"""The operator's settings: flags, or environment variables `AUTELLIX_OPERATOR_*`; a flag wins."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

ENV_PREFIX: Final = "AUTELLIX_OPERATOR_"
_IMAGE = r"^[^\s]+$"


class InvalidSettings(ValueError):
    """A setting is wrong; the message is one line that names it."""


class Settings(BaseModel):
    """How the operator runs. Each field is the flag and the variable of the same name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    watch_namespaces: tuple[Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")], ...] = Field(
        default=(), description="namespaces to serve, separated by commas; all if empty"
    )
    engine_image: str = Field(pattern=_IMAGE, description="image of engines where the resource names none")
    controller_image: str = Field(pattern=_IMAGE, description="image of controllers where the resource names none")
    etcd_image: str = Field(pattern=_IMAGE, description="image of etcd where the resource names none")
    namespace: str = Field(
        default="", description="namespace that the operator itself runs in, for network policies of clusters"
    )
    figures_seconds: float = Field(
        default=30, ge=1, le=3600, description="seconds between two looks at what the programs of a cluster do"
    )
    http_listen: Annotated[str, Field(pattern=r"^.+:[0-9]+$")] = Field(
        default="0.0.0.0:8081", description="address of /healthz, /readyz and /metrics, as HOST:PORT"
    )
    resync_seconds: float = Field(
        default=600, ge=10, le=86_400, description="seconds after which a cluster is looked at without any event"
    )
    workers: int = Field(default=4, ge=1, le=64, description="clusters that are reconciled at the same time")
    log_format: Literal["json", "text"] = Field(default="text", description="json or text")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="debug, info, warning or error"
    )

    @field_validator("watch_namespaces", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("http_listen")
    @classmethod
    def _has_a_port(cls, value: str) -> str:
        if not 1 <= int(value.rpartition(":")[2]) <= 65_535:
            raise ValueError("the port must be between 1 and 65535")
        return value

    @property
    def http_address(self) -> tuple[str, int]:
        """Host and port to listen on."""
        host, _, port = self.http_listen.rpartition(":")
        return host.strip("[]"), int(port)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds a flag for each setting."""
    for name, field in Settings.model_fields.items():
        default = "required" if field.is_required() else f"default: {_text(field.default) or 'empty'}"
        parser.add_argument(
            flag(name), dest=name, metavar="VALUE", help=f"{field.description} ({variable(name)}; {default})"
        )


def load(flags: Mapping[str, str | None], environment: Mapping[str, str]) -> Settings:
    """Settings from flags and environment. Raises InvalidSettings."""
    values: dict[str, str] = {}
    for name in Settings.model_fields:
        if (given := flags.get(name)) is not None:
            values[name] = given
        elif variable(name) in environment:
            values[name] = environment[variable(name)]
    unknown = [
        each for each in environment if each.startswith(ENV_PREFIX) and each not in map(variable, Settings.model_fields)
    ]
    if unknown:
        raise InvalidSettings(f"{min(unknown)}: there is no such setting")
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        reason = first["msg"].removeprefix("Value error, ")
        given_as = f" (is {values[name]!r})" if name in values else ""
        raise InvalidSettings(f"{flag(name)} or {variable(name)}: {reason}{given_as}") from error


def flag(name: str) -> str:
    """The flag of a setting."""
    return "--" + name.replace("_", "-")


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return ENV_PREFIX + name.upper()


def _text(default: Any) -> str:
    return ",".join(default) if isinstance(default, Sequence) and not isinstance(default, str) else str(default)
