"""Merges a user's pod template into the one the operator makes.

The merge happens here, before server-side apply, so that its precedence is ours and can be tested: the user's word
counts, except for what the system needs to work (its labels, its arguments, its variables). Lists of named items
merge by name, as in Kubernetes; an item of volumes, variables or mounts replaces its namesake as a whole, for half of
each would be neither.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from autellix_operator.api.base import InvalidSpec

Json = Any

#: Lists whose items merge field by field: the field that names an item.
_MERGED_BY: Final = {"containers": "name", "initContainers": "name"}
#: Lists whose items replace their namesake as a whole.
_REPLACED_BY: Final = {
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
}
#: Of these fields a probe or hook has one: the user's takes the place of ours.
_HANDLERS: Final = frozenset({"exec", "httpGet", "tcpSocket", "grpc", "sleep"})


def merge_pod_template(base: Mapping[str, Json], user: Mapping[str, Json], *, container: str, field: str) -> Json:
    """The pod template ``base`` with the user's changes.

    ``container`` is the container of ``base`` that the system owns, ``field`` the path of the user's template for
    messages. Raises InvalidSpec if the template touches what the system owns or has no template's shape.
    """
    _check(base, user, container, field)
    return _merge(base, user, field)


def _check(base: Mapping[str, Json], user: Mapping[str, Json], container: str, field: str) -> None:
    if unknown := set(user) - {"metadata", "spec"}:
        raise InvalidSpec(f"{field}.{min(unknown)}: a pod template has only metadata and spec")
    metadata = _mapping(user.get("metadata", {}), f"{field}.metadata")
    if unknown := set(metadata) - {"labels", "annotations"}:
        raise InvalidSpec(f"{field}.metadata.{min(unknown)}: only labels and annotations can be set")
    for kind in ("labels", "annotations"):
        owned = base["metadata"].get(kind, {})
        for name in _mapping(metadata.get(kind, {}), f"{field}.metadata.{kind}"):
            if name in owned:
                raise InvalidSpec(f"{field}.metadata.{kind}[{name}]: is set by the system and cannot be changed")
    spec = _mapping(user.get("spec", {}), f"{field}.spec")
    ours = next(each for each in base["spec"]["containers"] if each["name"] == container)
    for each in _items(spec.get("containers", []), "name", f"{field}.spec.containers"):
        if each["name"] == container:
            path = f"{field}.spec.containers[{container}]"
            if "args" in each:
                raise InvalidSpec(f"{path}.args: are set by the system; use the fields of the spec")
            owned_variables = {variable["name"] for variable in ours["env"]}
            for variable in _items(each.get("env", []), "name", f"{path}.env"):
                name = variable["name"]
                if name in owned_variables and name.startswith("AUTELLIX_"):
                    raise InvalidSpec(f"{path}.env[{name}]: is set by the system and cannot be changed")


def _merge(base: Json, user: Json, path: str) -> Json:
    if not isinstance(base, Mapping) or not isinstance(user, Mapping):
        return user
    result = dict(base)
    if _HANDLERS & user.keys():
        result = {name: value for name, value in result.items() if name not in _HANDLERS or name in user}
    for name, value in user.items():
        inner = f"{path}.{name}"
        if name in _MERGED_BY:
            result[name] = _merge_items(base.get(name, []), value, _MERGED_BY[name], inner, _merge)
        elif name in _REPLACED_BY:
            result[name] = _merge_items(base.get(name, []), value, _REPLACED_BY[name], inner, lambda _, new, __: new)
        else:
            result[name] = _merge(base[name], value, inner) if name in base else value
    return result


def _merge_items(
    base: list[Json], user: Json, key: str, path: str, merge: Callable[[Json, Json, str], Json]
) -> list[Json]:
    """Our items in our order, the user's merged in, then the user's own in their order."""
    theirs = {item[key]: item for item in _items(user, key, path)}
    ours = [
        merge(item, theirs.pop(item[key]), f"{path}[{item[key]}]") if item[key] in theirs else item for item in base
    ]
    return [*ours, *theirs.values()]


def _items(value: Json, key: str, path: str) -> list[Mapping[str, Json]]:
    if not isinstance(value, list):
        raise InvalidSpec(f"{path}: must be a list")
    seen = set()
    for index, item in enumerate(value):
        if not isinstance(item, Mapping) or not isinstance(item.get(key), str | int):
            raise InvalidSpec(f"{path}[{index}]: must have a {key}")
        if item[key] in seen:
            raise InvalidSpec(f"{path}[{index}]: {key} {item[key]} occurs twice")
        seen.add(item[key])
    return value


def _mapping(value: Json, path: str) -> Mapping[str, Json]:
    if not isinstance(value, Mapping):
        raise InvalidSpec(f"{path}: must be a map")
    return value
