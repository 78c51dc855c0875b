"""Objects of others that a spec refers to: whether they are there, and what of their contents pods hold."""

from collections.abc import Iterable
from dataclasses import dataclass

from autellix_operator.api.conditions import Reason
from autellix_operator.api.names import Component
from autellix_operator.api.process_table import Etcd
from autellix_operator.api.spec import Spec
from autellix_operator.diagnosis import Diagnosis
from autellix_operator.kube.applier import CLAIM, CONFIG_MAP, SECRET, Applier, NotFound, Object, Resource

_REASONS = {
    SECRET: Reason.SECRET_MISSING,
    CONFIG_MAP: Reason.CONFIG_MAP_MISSING,
    CLAIM: Reason.CLAIM_MISSING,
}


@dataclass(frozen=True, slots=True)
class Reference:
    """An object that the spec refers to, and the part that needs it."""

    component: Component | None
    """None: pods of all parts use it, and Kubernetes goes on without it where it can."""
    field: str
    resource: Resource
    name: str
    key: str | None = None
    """The key in the object that is needed; None: the object as such."""
    held: bool = False
    """Pods hold its content from their start on: when it changes they have to be made anew."""


@dataclass(frozen=True, slots=True)
class Referenced:
    """What became of all references of a spec."""

    missing: dict[Component, Diagnosis]
    held: dict[Component, tuple[str, ...]]
    """What pods of each part hold from their start on, in the order of the references. Secret."""
    incomplete: frozenset[Component] = frozenset()
    """Parts of whose ``held`` something is missing."""
    pull_secrets: Diagnosis | None = None
    """A missing Secret for image registries, which matters only if an image cannot be had without it."""


def references(spec: Spec) -> list[Reference]:
    """All objects that the spec refers to."""
    engine = Component.ENGINE
    found = [Reference(None, "spec.imagePullSecrets", SECRET, each.name) for each in spec.image_pull_secrets]
    if token := spec.model.token_secret_ref:
        found.append(Reference(engine, "spec.model.tokenSecretRef", SECRET, token.name, token.key))
    if spec.model.cache and (claim := spec.model.cache.claim_name):
        found.append(Reference(engine, "spec.model.cache.claimName", CLAIM, claim))
    for variable in spec.engine.env:
        source = variable.value_from
        if source is None:
            continue
        field = f"spec.engine.env[{variable.name}].valueFrom"
        if secret := source.secret_key_ref:
            found.append(Reference(engine, f"{field}.secretKeyRef", SECRET, secret.name, secret.key, True))
        if config := source.config_map_key_ref:
            found.append(Reference(engine, f"{field}.configMapKeyRef", CONFIG_MAP, config.name, config.key, True))
    if keys := spec.controller.api_keys_secret_ref:
        field = "spec.controller.apiKeysSecretRef"
        found.append(Reference(Component.CONTROLLER, field, SECRET, keys.name, keys.key))
    return found + _of_table(spec.process_table.etcd)


def _of_table(etcd: Etcd) -> list[Reference]:
    wanted: list[tuple[str, str, str]] = []
    if etcd.tls and (authority := etcd.tls.ca_secret_ref):
        wanted.append(("tls.caSecretRef", authority.name, authority.key))
    if etcd.tls and (certificate := etcd.tls.certificate_secret_ref):
        wanted += [("tls.certificateSecretRef", certificate.name, key) for key in ("tls.crt", "tls.key")]
    if password := etcd.password_secret_ref:
        wanted.append(("passwordSecretRef", password.name, password.key))
    prefix = "spec.processTable.etcd"
    return [
        Reference(Component.CONTROLLER, f"{prefix}.{field}", SECRET, name, key, True) for field, name, key in wanted
    ]


async def look_up(applier: Applier, namespace: str, wanted: Iterable[Reference]) -> Referenced:
    """Reads the objects. Raises ApiError, but not NotFound."""
    missing: dict[Component, Diagnosis] = {}
    held: dict[Component, tuple[str, ...]] = {}
    incomplete = set[Component]()
    pull_secrets: Diagnosis | None = None
    for reference in wanted:
        content, problem = "", None
        try:
            live = await applier.get(reference.resource, namespace, reference.name)
        except NotFound:
            problem = f"{reference.field}: there is no {reference.resource.kind} {reference.name}"
        else:
            content = _content(live, reference.key)
            if reference.key is not None and not content:
                problem = f"{reference.field}: {reference.resource.kind} {reference.name} has no key {reference.key}"
        diagnosis = Diagnosis(_REASONS[reference.resource], problem) if problem is not None else None
        if reference.component is None:
            pull_secrets = pull_secrets or diagnosis
            continue
        if diagnosis is not None:
            missing.setdefault(reference.component, diagnosis)
        if reference.held:
            held[reference.component] = (*held.get(reference.component, ()), content)
            if problem is not None:
                incomplete.add(reference.component)
    return Referenced(missing, held, frozenset(incomplete), pull_secrets)


def _content(live: Object, key: str | None) -> str:
    for part in ("data", "binaryData"):
        if key is not None and (value := (live.get(part) or {}).get(key)):
            return str(value)
    return ""
