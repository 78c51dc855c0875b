"""The process table."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from autellix_operator.api.base import DataKey, Image, ObjectName, PullPolicy, Size, SpecModel, size_in_bytes

Endpoint = Annotated[
    str, Field(min_length=3, max_length=260, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?:[1-9][0-9]{0,4}$")
]


class Storage(SpecModel):
    """The volume of one etcd member."""

    size: Size = "2Gi"
    class_name: ObjectName | None = None

    @field_validator("size")
    @classmethod
    def _holds_a_write_ahead_log(cls, size: str) -> str:
        if size_in_bytes(size) < 512 << 20:
            raise ValueError("size must be at least 512Mi")
        return size


class ManagedEtcd(SpecModel):
    """An etcd that the operator runs."""

    replicas: Literal[1, 3] = 1
    image: Image | None = None
    image_pull_policy: PullPolicy = "IfNotPresent"
    storage: Storage = Storage()
    when_deleted: Literal["Delete", "Retain"] = "Delete"
    template: Mapping[str, Any] = Field(default_factory=dict)


class CaSecretRef(SpecModel):
    """A key of a Secret that holds certificates of authorities."""

    name: ObjectName
    key: DataKey = "ca.crt"


class CertificateSecretRef(SpecModel):
    """A Secret with a certificate and its key, as of the type kubernetes.io/tls."""

    name: ObjectName


class PasswordSecretRef(SpecModel):
    """A key of a Secret that holds a password."""

    name: ObjectName
    key: DataKey = "password"


class Tls(SpecModel):
    """How an etcd that runs elsewhere is trusted, and what it is shown."""

    ca_secret_ref: CaSecretRef | None = None
    certificate_secret_ref: CertificateSecretRef | None = None


class Etcd(SpecModel):
    """Where the process table is."""

    managed: ManagedEtcd | None = None
    endpoints: Annotated[tuple[Endpoint, ...], Field(min_length=1, max_length=9, strict=False)] | None = None

    tls: Tls | None = None
    user: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    password_secret_ref: PasswordSecretRef | None = None

    @model_validator(mode="after")
    def _know_users_elsewhere_only(self) -> Self:
        if (self.user is None) != (self.password_secret_ref is None):
            raise ValueError("user and passwordSecretRef must be given together")
        if self.managed is not None and (self.tls or self.user):
            raise ValueError(
                "tls, user and passwordSecretRef go with endpoints only: managed has certificates of its own"
            )
        return self

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.managed is None) == (self.endpoints is None):
            raise ValueError("exactly one of managed and endpoints must be given")
        return self


class ProcessTable(SpecModel):
    """The process table."""

    etcd: Etcd = Etcd(managed=ManagedEtcd())
