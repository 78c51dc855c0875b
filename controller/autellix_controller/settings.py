"""The controller's settings: one validated model, read from flags, environment and an optional YAML file.

A flag wins over the environment, the environment over the file, the file over the default. Names follow from the
model: field ``session_timeout_seconds`` is the flag ``--session-timeout-seconds``, the variable
``AUTELLIX_CONTROLLER_SESSION_TIMEOUT_SECONDS`` and the key ``session_timeout_seconds`` of the file.
"""

import argparse
import ipaddress
import os
import re
import secrets
import socket
import sys
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeVar
from urllib.parse import urlsplit

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from autellix_controller.engines.keys import ENGINE_KEY_VARIABLE
from autellix_controller.table.access import EtcdAccess
from autellix_controller.table.urls import InvalidTable, parse_table_url
from autellix_wire import headers

ENV_PREFIX: Final = "AUTELLIX_CONTROLLER_"

_DNS_LABEL: Final = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_KUBERNETES_URL: Final = re.compile(rf"kubernetes://({_DNS_LABEL})/({_DNS_LABEL})")
#: RFC 9110, section 5.6.2.
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_NO_SESSION_HEADERS: Final = frozenset({"authorization", "cookie", "host", "content-length", *headers.OURS})
_HOST_PORT: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")


class InvalidSettings(ValueError):
    """A setting is wrong or missing. The message is one line that names it and says what is allowed."""


def _host_port(text: str) -> tuple[str, int]:
    match = _HOST_PORT.fullmatch(text)
    if not match or not 0 <= int(match[2]) <= 65535:
        raise ValueError(f"{text!r} is not HOST:PORT with a port from 0 to 65535, an IPv6 host in brackets")
    return match[1].strip("[]"), int(match[2])


def _is_listen(text: str) -> str:
    _host_port(text)
    return text


def _is_engine_url(text: str) -> str:
    form = "http://HOST:PORT or https://HOST:PORT"
    if "@" in text:  # not repeated: it may hold a password
        raise ValueError(f"a URL with a user or password is not {form}; the key of the engines goes elsewhere")
    try:
        url = urlsplit(text)
        usable = url.scheme in ("http", "https") and url.hostname and url.port != 0 and not (url.query or url.fragment)
    except ValueError:  # brackets that do not close, a port that is none
        usable = False
    if not usable:
        raise ValueError(f"{text!r} is not {form}")
    return text.rstrip("/").removesuffix("/v1")


def _is_http_url(text: str) -> str:
    try:
        url = urlsplit(text)
        usable = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:
        usable = False
    if not usable or "@" in text:
        raise ValueError("must be http://HOST... or https://HOST..., without user and password")
    return text


def _is_header(text: str) -> str:
    if not _HEADER.fullmatch(text):
        raise ValueError(f"{text!r} is not the name of a header")
    if text.lower() in _NO_SESSION_HEADERS:
        raise ValueError(f"{text!r} has another meaning and cannot name sessions")
    return text


def _is_kubernetes_url(text: str) -> str:
    if not _KUBERNETES_URL.fullmatch(text):
        raise ValueError(f"{text!r} is not kubernetes://NAMESPACE/SERVICE")
    return text


def _is_table_url(text: str) -> str:
    try:
        parse_table_url(text)
    except InvalidTable as error:
        raise ValueError(str(error).removeprefix("table: ")) from None
    return text


def _split(value: Any) -> Any:
    return [part for part in re.split(r"[,\s]+", value) if part] if isinstance(value, str) else value


Seconds = Annotated[float, Field(gt=0, le=7 * 86400, allow_inf_nan=False)]


class TableSettings(BaseModel):
    """Where the process table is."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    table: Annotated[str, AfterValidator(_is_table_url)] = Field(
        "memory:",
        description="process table: etcd://HOST:PORT[,HOST:PORT] (etcds:// with TLS), or for one replica "
        "sqlite:///PATH, or memory: (lost at its end)",
    )
    table_prefix: str = Field(
        "/autellix/default/default", pattern=r"^(/[A-Za-z0-9._-]+)+$", description="where in etcd the table lies"
    )
    table_ca_file: Path | None = Field(
        None, description="with etcds://: file with the authorities that etcd's certificate is checked with, PEM"
    )
    table_certificate_file: Path | None = Field(
        None, description="with etcds://: file with the certificate that etcd asks clients for, PEM"
    )
    table_key_file: Path | None = Field(None, description="file with the key of that certificate, PEM")
    table_user: str | None = Field(None, min_length=1, description="user of etcd; needs table_password_file")
    table_password_file: Path | None = Field(None, description="file with that user's password, one line")

    @model_validator(mode="after")
    def _consistent_access(self) -> Self:
        for one, other in (("table_certificate_file", "table_key_file"), ("table_user", "table_password_file")):
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                raise ValueError(f"{one}, {other}: give both or none")
        if (self.table_ca_file or self.table_certificate_file) and not self.table.startswith("etcds://"):
            raise ValueError("table_ca_file, table_certificate_file: only for a table at etcds://HOST:PORT")
        if self.table_user and not self.table.startswith(("etcd://", "etcds://")):
            raise ValueError("table_user: only for a table in etcd")
        return self

    @property
    def etcd_access(self) -> EtcdAccess:
        """What etcd is shown."""
        return EtcdAccess(
            ca_file=self.table_ca_file,
            certificate_file=self.table_certificate_file,
            key_file=self.table_key_file,
            user=self.table_user,
            password_file=self.table_password_file,
        )


class Settings(TableSettings):
    """All settings of one controller replica."""

    listen: Annotated[str, AfterValidator(_is_listen)] = Field(
        "127.0.0.1:8080", description="HOST:PORT to serve clients on"
    )
    share_port: bool = Field(
        False,
        description="several processes of this machine listen on the same port, each a replica of its own over one "
        "table in etcd; a process joins when it is ready and leaves when it stops (Linux)",
    )
    engine: Annotated[tuple[Annotated[str, AfterValidator(_is_engine_url)], ...], BeforeValidator(_split)] = Field(
        (), description="URL of an engine (any OpenAI-compatible server); repeatable, comma-separated outside flags"
    )
    engines: Annotated[str, AfterValidator(_is_kubernetes_url)] | None = Field(
        None, description="kubernetes://NAMESPACE/SERVICE: the engines are the ready pods behind that Service"
    )
    engine_key_file: Path | None = Field(
        None,
        description="file with the key that engines ask for, read again when it changes; further lines: keys to try "
        f"where the first is refused; without a file the key is taken from {ENGINE_KEY_VARIABLE}",
    )
    replica: str = Field(
        default_factory=lambda: f"{socket.gethostname()[:200]}-{secrets.token_hex(4)}",
        pattern=r"^[A-Za-z0-9._-]{1,253}$",
        description="name of this replica, unique among those alive (default: host name and a random suffix)",
    )
    session_timeout_seconds: float = Field(
        3600, ge=1, le=365 * 86400, description="a session without calls for so long expires"
    )
    routing_policy: Literal["autellix", "least_used", "round_robin", "prefix_hash"] = Field(
        "autellix", description="which engine gets a call; only autellix keeps a program's calls together by its pin"
    )
    locality_threshold_tokens: int = Field(
        0, ge=0, le=10_000_000, description="longer calls go to their program's engine; 0 pins every call"
    )
    spill_ratio: float = Field(
        1.5, ge=1, le=100, description="with spill_calls: how much busier than the least used a program's engine may be"
    )
    spill_calls: int = Field(
        8, ge=1, le=1_000_000, description="a pinned call moves if its engine has more calls than ratio x least + this"
    )
    spill_tokens: int = Field(
        4096,
        ge=1,
        le=1_000_000_000,
        description="and one call more for every so many tokens of the prompt, which would be computed anew",
    )
    api_keys_file: Path | None = Field(
        None, description="file of name:key lines, one for each key that clients may use; read again when it changes"
    )
    session_headers: Annotated[tuple[Annotated[str, AfterValidator(_is_header)], ...], BeforeValidator(_split)] = Field(
        (),
        description="name of a header that names sessions besides ours, as agent tools send one of their own; "
        "repeatable, the first that a call has counts",
    )
    isolate_prefix_cache: bool = Field(
        False, description="each tenant's calls use only prefixes that its own calls have cached (by cache_salt)"
    )
    allow_anonymous: bool = Field(False, description="serve callers without a key on other addresses than loopback")
    max_calls: int = Field(4096, ge=1, le=1_000_000, description="calls at once on this replica; more get 429")
    engine_calls: int = Field(
        1024, ge=1, le=1_000_000, description="calls of this replica at once on one engine; more wait in the queue"
    )
    queue_calls: int = Field(
        1024, ge=0, le=1_000_000, description="calls that wait for an engine at once; more get 429"
    )
    queue_seconds: Seconds = Field(30, description="longest wait for room on an engine; then 429")
    hold_seconds: float = Field(
        0,
        ge=0,
        le=7 * 86400,
        allow_inf_nan=False,
        description="while no engine serves: calls wait for one in the queue for so long, then 503; 0: 503 at once",
    )
    body_limit_bytes: int = Field(32 << 20, ge=1024, le=1 << 31, description="largest request body")
    bodies_limit_bytes: int = Field(
        256 << 20, ge=1024, le=1 << 40, description="request bodies of all running calls together; more get 429"
    )
    answer_limit_bytes: int = Field(64 << 20, ge=1024, le=1 << 31, description="largest answer that is not a stream")
    body_deadline_seconds: Seconds = Field(60, description="to receive the head of a request, and then its body")
    connect_deadline_seconds: Seconds = Field(5, description="to connect to an engine")
    first_byte_deadline_seconds: Seconds = Field(600, description="from sending a call to the first byte of its answer")
    idle_deadline_seconds: Seconds = Field(120, description="between two pieces of an answer")
    total_deadline_seconds: Seconds = Field(3600, description="for a call in all, its retry included")
    probe_seconds: Seconds = Field(5, description="between two probes of a healthy engine")
    drain_notice_seconds: float = Field(
        3, ge=0, le=3600, description="after SIGTERM: still accept calls for so long, not ready any more"
    )
    drain_seconds: Seconds = Field(30, description="after SIGTERM and the notice: time for running calls to end")
    trace_endpoint: Annotated[str, AfterValidator(_is_http_url)] | None = Field(
        None,
        description="URL that takes traces over OTLP/HTTP, such as http://collector:4318/v1/traces; none: no traces",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least severe level to log")

    @field_validator("engine")
    @classmethod
    def _distinct_engines(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(urls)) != len(urls):
            raise ValueError("names an engine twice; each may be given once")
        return urls

    @model_validator(mode="after")
    def _consistent(self) -> "Settings":
        if bool(self.engine) == bool(self.engines):
            raise ValueError("engine, engines: give either engine URLs or one kubernetes://NAMESPACE/SERVICE")
        if self.share_port:
            self._check_shared_port()
        if self.body_limit_bytes > self.bodies_limit_bytes:
            raise ValueError("bodies_limit_bytes: must be at least body_limit_bytes")
        if self.hold_seconds and not self.queue_calls:
            raise ValueError("hold_seconds: needs queue_calls of at least 1, since calls are held in the queue")
        if self.api_keys_file and self.allow_anonymous:
            raise ValueError("api_keys_file, allow_anonymous: only one of the two may be set")
        if not self.api_keys_file and not self.allow_anonymous and not is_loopback(self.host):
            raise ValueError(
                f"listen: {self.listen} is reachable by others and no key is required; "
                "set api_keys_file, or allow_anonymous to serve everybody, or listen on 127.0.0.1"
            )
        return self

    def _check_shared_port(self) -> None:
        if not self.table.startswith(("etcd://", "etcds://")):
            raise ValueError(
                "share_port: needs a table that all processes share: etcd://HOST:PORT; with memory: or sqlite:// "
                "every process would know its own programs only"
            )
        if not self.port:
            raise ValueError("share_port: listen must name a port; with 0 every process would get its own")
        if sys.platform != "linux":
            raise ValueError("share_port: only on Linux, whose kernel spreads connections over the processes")

    @property
    def host(self) -> str:
        """Address to listen on."""
        return _host_port(self.listen)[0]

    @property
    def port(self) -> int:
        """Port to listen on; 0 lets the system choose."""
        return _host_port(self.listen)[1]

    @property
    def kubernetes_service(self) -> tuple[str, str] | None:
        """Namespace and name of the Service that the engines stand behind."""
        match = _KUBERNETES_URL.fullmatch(self.engines or "")
        return (match[1], match[3]) if match else None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def add_arguments(parser: argparse.ArgumentParser, model: type[TableSettings]) -> None:
    """Adds a flag for each setting of the model, with help taken from it."""
    parser.add_argument(
        "--config", metavar="FILE", default=argparse.SUPPRESS, help=f"YAML file with settings [{ENV_PREFIX}CONFIG]"
    )
    for name, field in model.model_fields.items():
        shown = f", default {default}" if (default := shown_default(field)) else ""
        options: dict[str, Any] = {
            "dest": name,
            "default": argparse.SUPPRESS,
            "help": f"{field.description} [{ENV_PREFIX}{name.upper()}{shown}]".replace("%", "%%"),
        }
        if field.annotation is bool:
            options |= {"action": "store_const", "const": "true"}
        elif typing.get_origin(field.annotation) is tuple:
            options |= {"action": "append", "metavar": "URL" if name == "engine" else "NAME"}
        else:
            options |= {"metavar": _metavar(field.annotation)}
        parser.add_argument("--" + name.replace("_", "-"), **options)


def shown_default(field: FieldInfo) -> str:
    """A setting's default for people; empty if there is none, or none worth saying."""
    default = None if field.default_factory else field.default
    return "" if default is None or default is False or default == () else str(default)


def _metavar(annotation: Any) -> str:
    if typing.get_origin(annotation) is Literal:
        return "|".join(typing.get_args(annotation))
    if isinstance(annotation, types.UnionType):
        annotation = typing.get_args(annotation)[0]
    return {int: "N", float: "N", Path: "FILE"}.get(annotation, "VALUE")


Model = TypeVar("Model", bound=TableSettings)


def load(model: type[Model], arguments: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Model:
    """The settings from parsed flags, environment and file. Raises InvalidSettings.

    Variables with our prefix that are no setting are ignored: Kubernetes adds some of its own for a Service of the
    same name.
    """
    config = arguments.get("config") or environ.get(ENV_PREFIX + "CONFIG")
    file = _read_file(Path(config)) if config else {}
    values: dict[str, Any] = {}
    for name in model.model_fields:
        for source, key in ((arguments, name), (environ, ENV_PREFIX + name.upper()), (file, name)):
            if key in source:
                values[name] = source[key]
                break
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise InvalidSettings(_first_line(error)) from None


def _read_file(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise InvalidSettings(f"config: cannot read {path} as YAML: {reason}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InvalidSettings(f"config: {path} must hold one mapping from setting to value")
    for name in values:
        if name not in Settings.model_fields:
            allowed = ", ".join(Settings.model_fields)
            raise InvalidSettings(f"config: {path}: {name}: no such setting; allowed are {allowed}")
    return values


def _first_line(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:
        return message
    name = str(first["loc"][0])
    if first["type"] == "value_error":
        return f"{name}: {message}"
    return f"{name}: {first['input']!r}: {message}"
