"""Reconciles over an API in memory: from any state to the one that is wanted, and then no further."""

import base64
import copy
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from autellix_operator.api.names import Key
from autellix_operator.desired.objects import Images
from autellix_operator.kube.applier import (
    AUTELLIX_CLUSTER,
    CONFIG_MAP,
    DEPLOYMENT,
    EVENT,
    OPTIONAL,
    OWNED,
    SECRET,
    SERVICE,
    STATEFUL_SET,
    ApiError,
    Object,
    Refused,
    Resource,
)
from autellix_operator.reconcile import Readiness, Reconciler
from support.memory_applier import MemoryApplier, cluster_resource

Json = Any

KEY = Key("space", "demo")
IMAGES = Images(engine="engine:1", controller="controller:1", etcd="etcd:1")
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def reconciler(api: MemoryApplier) -> Reconciler:
    # Always the same key: what a cluster looks like must not depend on how often a failed attempt drew a new one.
    return Reconciler(api, IMAGES, lambda: NOON, lambda: "key")


async def converged(api: MemoryApplier) -> None:
    operator = reconciler(api)
    for _ in range(3):
        await operator.reconcile(KEY)
    api.writes.clear()
    await operator.reconcile(KEY)
    assert api.writes == []


def children(api: MemoryApplier) -> dict[tuple[str, str], Json]:
    return {(kind.kind, name): found for (kind, _, name), found in api.objects.items() if kind in OWNED}


async def test_a_new_cluster_gets_all_its_objects_in_one_reconcile_and_the_second_writes_nothing() -> None:
    api = MemoryApplier()
    api.put(AUTELLIX_CLUSTER, cluster_resource({}))
    operator = reconciler(api)
    result = await operator.reconcile(KEY)
    assert result.exists
    assert len(children(api)) == 20
    assert api.objects[AUTELLIX_CLUSTER, "space", "demo"]["status"]["conditions"]
    api.writes.clear()
    await operator.reconcile(KEY)
    assert api.writes == []


@pytest.mark.parametrize(
    ("spec", "reason"), [({}, "Starting"), ({"engine": {"replicas": -1}}, "InvalidSpec")], ids=["valid", "not valid"]
)
async def test_what_ready_says_is_a_result_of_the_reconcile(spec: Json, reason: str) -> None:
    api = MemoryApplier()
    api.put(AUTELLIX_CLUSTER, cluster_resource(spec))
    result = await reconciler(api).reconcile(KEY)
    assert result.readiness == Readiness(False, reason)


async def test_what_is_as_it_was_left_is_not_applied_again_until_anybody_touches_it() -> None:
    api = MemoryApplier()
    api.put(AUTELLIX_CLUSTER, cluster_resource({}))
    operator = reconciler(api)
    for _ in range(3):
        await operator.reconcile(KEY)
    applied: list[str] = []
    original = api.apply

    async def apply(resource: Resource, manifest: Json) -> Object:
        applied.append(manifest["metadata"]["name"])
        return await original(resource, manifest)

    api.apply = apply  # type: ignore[method-assign]
    await operator.reconcile(KEY)
    assert applied == []
    service = api.objects[SERVICE, "space", "demo"]
    service["spec"]["type"] = "NodePort"
    api.put(SERVICE, service)
    await operator.reconcile(KEY)
    assert applied == ["demo"]
    assert api.objects[SERVICE, "space", "demo"]["spec"]["type"] == "ClusterIP"


async def test_a_cluster_that_is_gone_or_going_is_left_alone() -> None:
    api = MemoryApplier()
    assert (await reconciler(api).reconcile(KEY)).exists is False
    going = cluster_resource({})
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    api.put(AUTELLIX_CLUSTER, going)
    assert (await reconciler(api).reconcile(KEY)).exists
    assert api.writes == []


async def test_children_that_are_no_longer_desired_are_removed_and_those_of_others_stay() -> None:
    api = MemoryApplier()
    api.put(AUTELLIX_CLUSTER, cluster_resource({}))
    await converged(api)
    labels = children(api)["Service", "demo"]["metadata"]["labels"]
    mine = children(api)["Service", "demo"]["metadata"]["ownerReferences"]
    for name, owners in (("mine", mine), ("ours", []), ("theirs", [mine[0] | {"uid": "another"}])):
        metadata = {"name": name, "namespace": "space", "labels": labels, "ownerReferences": owners}
        api.put(SERVICE, {"metadata": metadata})
    api.put(AUTELLIX_CLUSTER, cluster_resource({"processTable": {"etcd": {"endpoints": ["a:1"]}}}))
    await converged(api)
    names = {name for _, name in children(api)}
    assert "demo-etcd" not in names
    assert "mine" not in names
    assert {"ours", "theirs"} <= names


async def test_an_object_of_somebody_else_is_not_taken_over() -> None:
    api = MemoryApplier()
    api.put(AUTELLIX_CLUSTER, cluster_resource({}))
    theirs = api.put(SERVICE, {"metadata": {"name": "demo", "namespace": "space"}, "spec": {"mine": True}})
    result = await reconciler(api).reconcile(KEY)
    assert result.requeue_after is not None
    assert api.objects[SERVICE, "space", "demo"] == theirs
    ready = api.objects[AUTELLIX_CLUSTER, "space", "demo"]["status"]["conditions"][0]
    assert ready["reason"] == "NameConflict"


async def test_children_of_a_deleted_cluster_of_the_same_name_are_waited_for() -> None:
    api = MemoryApplier()
    api.put(AUTELLIX_CLUSTER, cluster_resource({}))
    await converged(api)
    second = cluster_resource({})
    second["metadata"]["uid"] = "uid-second"
    api.put(AUTELLIX_CLUSTER, second)
    api.writes.clear()
    result = await reconciler(api).reconcile(KEY)
    assert result.requeue_after is not None
    assert result.requeue_after < 5
    assert api.writes == []


def text(api: MemoryApplier, name: str, key: str) -> str:
    return base64.b64decode(api.objects[SECRET, "space", name]["data"][key]).decode()


def template_of(api: MemoryApplier, resource: Resource, name: str) -> Json:
    return copy.deepcopy(api.objects[resource, "space", name]["spec"]["template"])


async def test_certificates_are_made_once_and_nothing_but_what_is_deleted_is_made_anew() -> None:
    api = MemoryApplier()
    api.put(AUTELLIX_CLUSTER, cluster_resource({}))
    await converged(api)
    names = ("demo-etcd-ca", "demo-etcd-server", "demo-etcd-client")
    before = {name: text(api, name, "tls.crt") for name in names}
    etcd, controllers = template_of(api, STATEFUL_SET, "demo-etcd"), template_of(api, DEPLOYMENT, "demo-controller")
    assert text(api, "demo-etcd-client", "ca.crt") == before["demo-etcd-ca"]

    del api.objects[SECRET, "space", "demo-etcd-client"]
    await converged(api)
    assert text(api, "demo-etcd-server", "tls.crt") == before["demo-etcd-server"]
    assert text(api, "demo-etcd-client", "tls.crt") != before["demo-etcd-client"]
    assert template_of(api, STATEFUL_SET, "demo-etcd") == etcd, "members trust the authority, which is the same"
    assert template_of(api, DEPLOYMENT, "demo-controller") != controllers

    del api.objects[SECRET, "space", "demo-etcd-ca"]
    await converged(api)
    assert all(text(api, name, "tls.crt") != before[name] for name in names)
    assert text(api, "demo-etcd-server", "ca.crt") == text(api, "demo-etcd-ca", "tls.crt")
    assert template_of(api, STATEFUL_SET, "demo-etcd") != etcd


async def test_a_certificate_without_its_authority_is_made_anew() -> None:
    api = MemoryApplier()
    api.put(AUTELLIX_CLUSTER, cluster_resource({}))
    await converged(api)
    secret = api.objects[SECRET, "space", "demo-etcd-client"]
    del secret["data"]["ca.crt"]
    api.put(SECRET, secret)
    await converged(api)
    assert text(api, "demo-etcd-client", "ca.crt") == text(api, "demo-etcd-ca", "tls.crt")


@pytest.mark.parametrize(("replicas", "asked"), [(2, True), (3, False), (4, False)])
async def test_figures_are_asked_for_right_before_engines_are_taken_away(replicas: int, asked: bool) -> None:
    api = MemoryApplier()
    api.put(AUTELLIX_CLUSTER, cluster_resource({"engine": {"replicas": 3}}))
    await converged(api)
    seen: list[int] = []

    async def refresh(key: Key) -> None:
        seen.append(api.objects[DEPLOYMENT, key.namespace, "demo-engine"]["spec"]["replicas"])
        raise ApiError(503, "Unavailable", "figures are never a reason for failure")

    api.put(AUTELLIX_CLUSTER, cluster_resource({"engine": {"replicas": replicas}}))
    operator = Reconciler(api, IMAGES, lambda: NOON, lambda: "key", refresh_figures=refresh)
    await operator.reconcile(KEY)
    assert seen == ([3] if asked else [])
    assert api.objects[DEPLOYMENT, "space", "demo-engine"]["spec"]["replicas"] == replicas


async def test_certificates_are_renewed_in_time_and_members_need_no_new_start() -> None:
    api = MemoryApplier()
    api.put(AUTELLIX_CLUSTER, cluster_resource({}))
    await converged(api)
    server, client = (text(api, f"demo-etcd-{part}", "tls.crt") for part in ("server", "client"))
    etcd = template_of(api, STATEFUL_SET, "demo-etcd")
    for days, renewed in ((200, False), (260, True)):
        later = Reconciler(api, IMAGES, lambda days=days: NOON + timedelta(days=days), lambda: "key")  # type: ignore[misc]
        await later.reconcile(KEY)
        assert (text(api, "demo-etcd-server", "tls.crt") != server) is renewed
        assert (text(api, "demo-etcd-client", "tls.crt") != client) is renewed
    assert template_of(api, STATEFUL_SET, "demo-etcd") == etcd


async def test_a_refused_object_leaves_the_others_to_be_made() -> None:
    api = MemoryApplier()
    api.put(AUTELLIX_CLUSTER, cluster_resource({}))
    original = api.apply

    async def refuse_engines(resource: Json, manifest: Json) -> Json:
        if resource is DEPLOYMENT and manifest["metadata"]["name"] == "demo-engine":
            raise Refused(422, "Invalid", "spec.template: bad")
        return await original(resource, manifest)

    api.apply = refuse_engines  # type: ignore[method-assign]
    await reconciler(api).reconcile(KEY)
    assert (DEPLOYMENT, "space", "demo-controller") in api.objects
    conditions = api.objects[AUTELLIX_CLUSTER, "space", "demo"]["status"]["conditions"]
    reasons = {each["type"]: each["reason"] for each in conditions}
    assert reasons["EnginesReady"] == "ApplyRefused"
    assert reasons["ControllerReady"] == "Starting"


@pytest.mark.parametrize(
    ("secret", "reason"),
    [(None, "SecretMissing"), ({"other": "eA=="}, "SecretMissing"), ({"keys": "eA=="}, "Starting")],
)
async def test_secrets_that_the_spec_refers_to_are_looked_up(secret: Json, reason: str) -> None:
    api = MemoryApplier()
    api.put(AUTELLIX_CLUSTER, cluster_resource({"controller": {"apiKeysSecretRef": {"name": "users"}}}))
    if secret:
        api.put(SECRET, {"metadata": {"name": "users", "namespace": "space"}, "data": secret})
    result = await reconciler(api).reconcile(KEY)
    conditions = api.objects[AUTELLIX_CLUSTER, "space", "demo"]["status"]["conditions"]
    assert {each["type"]: each["reason"] for each in conditions}["ControllerReady"] == reason
    assert result.references == {("Secret", "users")}


async def test_what_is_behind_an_environment_starts_engines_anew_and_nothing_else() -> None:
    source = {"secretKeyRef": {"name": "store", "key": "password"}}
    other = {"configMapKeyRef": {"name": "common", "key": "level"}}
    env = [{"name": "PASSWORD", "valueFrom": source}, {"name": "LEVEL", "valueFrom": other}]
    api = MemoryApplier()
    api.put(AUTELLIX_CLUSTER, cluster_resource({"engine": {"env": env}}))
    metadata = {"namespace": "space"}
    api.put(CONFIG_MAP, {"metadata": metadata | {"name": "common"}, "data": {"level": "low"}})

    def templates() -> tuple[Json, Json]:
        names = ("demo-engine", "demo-controller")
        engine, controller = (api.objects[DEPLOYMENT, "space", name]["spec"]["template"] for name in names)
        return copy.deepcopy(engine), copy.deepcopy(controller)

    def put_password(value: str) -> None:
        api.put(SECRET, {"metadata": metadata | {"name": "store"}, "data": {"password": value, "other": "eA=="}})

    result = await reconciler(api).reconcile(KEY)
    assert result.references == {("Secret", "store"), ("ConfigMap", "common")}
    conditions = api.objects[AUTELLIX_CLUSTER, "space", "demo"]["status"]["conditions"]
    assert {each["type"]: each["reason"] for each in conditions}["EnginesReady"] == "SecretMissing"
    put_password("Zmlyc3Q=")
    await converged(api)
    before = templates()
    put_password("c2Vjb25k")
    await converged(api)
    after = templates()
    assert before[0]["metadata"]["annotations"] != after[0]["metadata"]["annotations"]
    assert before[1] == after[1]


@pytest.mark.parametrize(("field", "reason"), [("claimName", "ClaimMissing"), ("ephemeralSize", "Starting")])
async def test_a_missing_claim_for_models_is_named(field: str, reason: str) -> None:
    api = MemoryApplier()
    cache = {field: "models" if field == "claimName" else "10Gi"}
    api.put(AUTELLIX_CLUSTER, cluster_resource({"model": {"name": "m", "cache": cache}}))
    await reconciler(api).reconcile(KEY)
    conditions = api.objects[AUTELLIX_CLUSTER, "space", "demo"]["status"]["conditions"]
    assert {each["type"]: each["reason"] for each in conditions}["EnginesReady"] == reason


async def test_monitors_are_made_where_their_api_is_and_are_a_condition_where_it_is_not() -> None:
    api = MemoryApplier()
    api.absent.add("monitoring.coreos.com/v1")
    wanted = {"monitoring": {"monitors": "Enabled", "alerts": "Enabled"}}
    api.put(AUTELLIX_CLUSTER, cluster_resource(wanted))

    def condition() -> Json:
        conditions = api.objects[AUTELLIX_CLUSTER, "space", "demo"]["status"]["conditions"]
        return next((each for each in conditions if each["type"] == "MonitoringReady"), None)

    def made() -> list[tuple[str, str]]:
        return sorted((kind.kind, name) for kind, _, name in api.objects if kind in OPTIONAL)

    result = await reconciler(api).reconcile(KEY)
    assert (condition()["status"], condition()["reason"]) == ("False", "ApiMissing")
    assert result.requeue_after is not None
    api.absent.clear()
    await converged(api)
    assert condition()["status"] == "True"
    assert made() == [
        ("PodMonitor", "demo-engine"),
        ("PodMonitor", "demo-etcd"),
        ("PrometheusRule", "demo-controller"),
        ("ServiceMonitor", "demo-controller"),
    ]
    api.put(AUTELLIX_CLUSTER, cluster_resource({}))
    await converged(api)
    assert condition() is None
    assert made() == []


async def test_of_a_paused_cluster_nothing_is_changed_and_the_status_speaks_of_the_generation_before() -> None:
    api = MemoryApplier()
    api.put(AUTELLIX_CLUSTER, cluster_resource({}))
    await converged(api)
    before = children(api)
    resource = cluster_resource({"engine": {"replicas": 5}})
    resource["metadata"]["annotations"] = {"autellix.dev/paused": "true"}
    resource["status"] = api.objects[AUTELLIX_CLUSTER, "space", "demo"]["status"]
    api.put(AUTELLIX_CLUSTER, resource)
    del api.objects[SERVICE, "space", "demo"]
    await reconciler(api).reconcile(KEY)
    assert children(api) == {key: each for key, each in before.items() if key != ("Service", "demo")}
    live = api.objects[AUTELLIX_CLUSTER, "space", "demo"]
    assert live["status"]["observedGeneration"] < live["metadata"]["generation"]
    (progressing,) = [each for each in live["status"]["conditions"] if each["type"] == "Progressing"]
    assert (progressing["status"], progressing["reason"]) == ("False", "Paused")
    await converged(api)
    api.put(AUTELLIX_CLUSTER, cluster_resource({"engine": {"replicas": 5}}))
    await converged(api)
    assert api.objects[DEPLOYMENT, "space", "demo-engine"]["spec"]["replicas"] == 5
    assert (
        live["metadata"]["generation"] == api.objects[AUTELLIX_CLUSTER, "space", "demo"]["status"]["observedGeneration"]
    )


async def test_an_event_is_made_once_even_if_the_status_cannot_be_written() -> None:
    api = MemoryApplier()
    api.put(AUTELLIX_CLUSTER, cluster_resource({}))
    original = api.apply_status

    async def unavailable(resource: Json, manifest: Json) -> Json:
        api.apply_status = original  # type: ignore[method-assign]
        raise ApiError(503, "Unavailable", "later")

    api.apply_status = unavailable  # type: ignore[method-assign]
    with pytest.raises(ApiError):
        await reconciler(api).reconcile(KEY)
    await converged(api)
    assert len([address for address in api.objects if address[0] is EVENT]) == 1


specs = st.sampled_from(
    [
        {},
        {"engine": {"replicas": 3, "gpu": {}}},
        {"scheduling": {"policy": "Fcfs"}, "controller": {"service": {"annotations": {"a": "b"}}}},
        {"processTable": {"etcd": {"endpoints": ["etcd.example:2379"]}}},
        {"engine": {"template": {"spec": {"nodeSelector": {"disk": "fast"}}}}},
        {"networkPolicy": {"mode": "Enabled"}, "engine": {"serviceAccountName": "theirs"}},
    ]
)
damage = st.lists(
    st.tuples(st.sampled_from(["delete", "drift", "strip"]), st.integers(0, 18), st.booleans()), max_size=8
)


# Not shrunk: examples are small as they are, and shrinking would take minutes.
@settings(deadline=None, max_examples=30, phases=[Phase.reuse, Phase.generate])
@given(before=specs, after=specs, damages=damage, failures=st.lists(st.integers(0, 40), max_size=3))
async def test_from_any_state_reconciles_lead_to_the_one_that_is_wanted(
    before: Json, after: Json, damages: Json, failures: list[int]
) -> None:
    """Children deleted, changed or stripped of their labels, the spec changed, requests failing on the way."""
    api = MemoryApplier()
    api.put(AUTELLIX_CLUSTER, cluster_resource(before))
    await converged(api)
    for how, index, _ in damages:
        address = sorted((each for each in api.objects if each[0] in OWNED), key=str)
        if not address:
            break
        chosen = address[index % len(address)]
        if how == "delete":
            del api.objects[chosen]
        elif how == "drift" and "spec" in api.objects[chosen]:
            drifting = api.objects[chosen]["spec"]
            drifting[min(drifting)] = "drifted"
        else:
            api.objects[chosen]["metadata"]["labels"] = {}
        if chosen in api.objects:
            api.put(chosen[0], api.objects[chosen])
    api.put(AUTELLIX_CLUSTER, cluster_resource(after))
    operator = reconciler(api)
    for position in failures:
        calls = count()

        def maybe_fail(position: int = position, calls: Any = calls) -> None:
            if next(calls) == position:
                raise ApiError(503, "Unavailable", "later")

        api._maybe_fail = maybe_fail  # type: ignore[method-assign]
        try:
            await operator.reconcile(KEY)
        except ApiError:
            continue
    api._maybe_fail = lambda: None  # type: ignore[method-assign]
    await converged(api)

    fresh = MemoryApplier()
    fresh.put(AUTELLIX_CLUSTER, cluster_resource(after))
    await converged(fresh)

    def shape(found: Json) -> Json:
        found = copy.deepcopy(found)
        for each in found.values():
            template = each.get("spec", {}).get("template", {"metadata": {}})
            # Certificates are never twice the same.
            template["metadata"].get("annotations", {}).pop("autellix.dev/table-credentials-digest", None)
        return {key: (each.get("spec"), each["metadata"]["labels"]) for key, each in found.items()}

    # An object stripped of its labels after the spec dropped it is no longer recognised as ours: it goes with its
    # owner.
    lost = {key for key, each in children(api).items() if not each["metadata"]["labels"]}
    wanted = {key: each for key, each in children(fresh).items() if key not in lost}
    assert lost.isdisjoint(wanted)
    assert shape({key: each for key, each in children(api).items() if key not in lost}) == shape(wanted)
