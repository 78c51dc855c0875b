"""What a spec leads to."""

import inspect
import json
import re
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autellix_controller.metrics
from autellix_controller.engines.endpointslices import REVISION_LABEL
from autellix_controller.settings import Settings as ControllerSettings
from autellix_controller.settings import TableSettings
from autellix_engine.policy.settings import SchedulingSettings
from autellix_operator.api.base import InvalidSpec
from autellix_operator.api.controller import RoutingPolicy
from autellix_operator.api.names import Cluster, Component
from autellix_operator.api.spec import Spec, parse_spec
from autellix_operator.desired.digests import Digests
from autellix_operator.desired.etcd import quota_bytes
from autellix_operator.desired.objects import Images, desired_objects
from autellix_operator.desired.secrets import contents_digest
from support.memory_applier import cluster_resource

CLUSTER = Cluster("space", "demo", "uid-demo")
IMAGES = Images(engine="engine:1", controller="controller:1", etcd="etcd:1")
Json = Any
DIGESTS = Digests(table_authority="authority", table_client="client")


def spec_of(**fields: Json) -> Spec:
    return parse_spec(cluster_resource(fields))


def objects(**fields: Json) -> dict[tuple[str, str], dict[str, Json]]:
    found = desired_objects(CLUSTER, spec_of(**fields), IMAGES, DIGESTS)
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def container(kind: str, name: str, **fields: Json) -> dict[str, Json]:
    found: dict[str, Json] = objects(**fields)[kind, name]["spec"]["template"]["spec"]["containers"][0]
    return found


def engine(**fields: Json) -> dict[str, Json]:
    return container("Deployment", "demo-engine", engine=fields)


def controller(**fields: Json) -> dict[str, Json]:
    return container("Deployment", "demo-controller", controller=fields)


def flags(arguments: list[str]) -> dict[str, str]:
    assert arguments[0] == "serve"
    return dict(zip(arguments[1::2], arguments[2::2], strict=True))


def variables(found: dict[str, Json]) -> dict[str, Json]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in found["env"]}


def test_the_objects_are_those_of_the_contract() -> None:
    assert objects().keys() == {
        ("ServiceAccount", "demo-etcd"),
        ("Service", "demo-etcd"),
        ("StatefulSet", "demo-etcd"),
        ("ServiceAccount", "demo-engine"),
        ("Service", "demo-engine"),
        ("Deployment", "demo-engine"),
        ("ServiceAccount", "demo-controller"),
        ("Role", "demo-controller"),
        ("RoleBinding", "demo-controller"),
        ("Service", "demo"),
        ("Deployment", "demo-controller"),
        ("PodDisruptionBudget", "demo-engine"),
        ("PodDisruptionBudget", "demo-controller"),
        ("PodDisruptionBudget", "demo-etcd"),
    }


def test_controllers_read_the_newest_revision_of_engines_off_the_label_that_the_operator_sets() -> None:
    assert REVISION_LABEL not in objects()["Service", "demo-engine"]["metadata"]["labels"]
    found = desired_objects(CLUSTER, spec_of(), IMAGES, DIGESTS, engine_revision="6d5f7c9bb8")
    labelled = {each["metadata"]["name"] for each in found if REVISION_LABEL in each["metadata"]["labels"]}
    assert labelled == {"demo-engine"}
    (service,) = (each for each in found if (each["kind"], each["metadata"]["name"]) == ("Service", "demo-engine"))
    assert service["metadata"]["labels"][REVISION_LABEL] == "6d5f7c9bb8"
    assert REVISION_LABEL not in service["spec"]["selector"]


def test_an_etcd_elsewhere_leaves_out_our_own() -> None:
    elsewhere = {"etcd": {"endpoints": ["a:1", "b:2"]}}
    assert not any(name == "demo-etcd" for _, name in objects(processTable=elsewhere))
    found = container("Deployment", "demo-controller", processTable=elsewhere)
    assert variables(found)["AUTELLIX_CONTROLLER_TABLE"] == "etcd://a:1,b:2"


def test_the_engine_gets_its_arguments() -> None:
    found = flags(
        engine(
            gpu={"count": 2},
            maxModelLength=4096,
            maxSequences=8,
            gpuMemoryUtilizationPercent=5,
            extraArgs=["--seed", "1"],
        )["args"]
    )
    scheduling = json.loads(found.pop("--scheduling"))
    assert scheduling["policy"] == "plas"
    assert found == {
        "--model": "tiny",
        "--served-model-name": "tiny",
        "--host": "0.0.0.0",
        "--port": "8000",
        "--max-model-len": "4096",
        "--max-num-seqs": "8",
        "--tensor-parallel-size": "2",
        "--gpu-memory-utilization": "0.05",
        "--seed": "1",
    }


def test_what_is_not_set_is_left_to_the_engine() -> None:
    assert flags(engine()["args"]).keys() == {"--model", "--served-model-name", "--host", "--port", "--scheduling"}


def test_every_scheduling_setting_reaches_the_engine_in_its_own_words() -> None:
    fields = {
        "policy": "Atlas",
        "queueBoundsMilliseconds": [10, 20],
        "quantaMilliseconds": [3, 4],
        "starvationRatioPercent": 250,
        "starvationFloorMilliseconds": 5,
        "stepsPerDecision": 6,
        "spareCalls": 7,
        "maxPreemptionsPerStep": 8,
        "minimumRunMilliseconds": 9,
        "programIdleSeconds": 9999,
        "maxPrograms": 11,
    }
    found = container("Deployment", "demo-engine", scheduling=fields)
    settings = SchedulingSettings.parse(flags(found["args"])["--scheduling"])
    assert settings == SchedulingSettings(
        policy="atlas",
        queue_bounds_ms=(10, 20),
        quanta_ms=(3, 4),
        starvation_ratio=2.5,
        starvation_floor_ms=5,
        steps_per_decision=6,
        spare_calls=7,
        max_preemptions_per_step=8,
        min_run_ms=9,
        program_idle_seconds=9999,
        max_programs=11,
    )


def test_the_defaults_of_the_resource_are_those_of_the_scheduler() -> None:
    assert SchedulingSettings.parse(flags(engine()["args"])["--scheduling"]) == SchedulingSettings()


def test_engines_remember_programs_for_as_long_as_controllers_do() -> None:
    found = container("Deployment", "demo-engine", controller={"sessionTimeoutSeconds": 7200})
    assert json.loads(flags(found["args"])["--scheduling"])["program_idle_seconds"] == 7200


def test_the_engine_gets_its_environment() -> None:
    fields = {"name": "m", "tokenSecretRef": {"name": "hub", "key": "t"}}
    assert variables(container("Deployment", "demo-engine", model=fields, engine={"drainSeconds": 7})) == {
        "AUTELLIX_ENGINE_KEY_FILE": "/etc/autellix/engine-keys/keys",
        "AUTELLIX_ENGINE_NAME": {"fieldRef": {"fieldPath": "metadata.name"}},
        "AUTELLIX_DRAIN_SECONDS": "7",
        "HOME": "/scratch",
        "TMPDIR": "/tmp",
        "HF_HOME": "/scratch/huggingface",
        "HF_TOKEN": {"secretKeyRef": {"name": "hub", "key": "t"}},
    }


def test_the_engine_has_time_to_drain_and_to_stop() -> None:
    deployment = objects(engine={"drainSeconds": 100, "startupTimeoutSeconds": 61})["Deployment", "demo-engine"]
    pod = deployment["spec"]["template"]["spec"]
    found = pod["containers"][0]
    assert found["lifecycle"]["preStop"]["exec"]["command"][-2:] == ["--deadline-seconds", "100"]
    assert pod["terminationGracePeriodSeconds"] > 100
    assert found["startupProbe"]["failureThreshold"] * found["startupProbe"]["periodSeconds"] >= 61


def test_gpus_are_requested_by_their_resource() -> None:
    assert engine(gpu={"count": 3, "resourceName": "amd.com/gpu"})["resources"]["limits"] == {"amd.com/gpu": "3"}


def test_the_update_strategy_is_the_one_asked_for() -> None:
    found = objects(engine={"update": {"maxSurge": 0, "maxUnavailable": 2}})["Deployment", "demo-engine"]
    assert found["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 2}


def test_an_engine_is_available_only_when_controllers_have_had_time_to_find_it() -> None:
    assert objects()["Deployment", "demo-engine"]["spec"]["minReadySeconds"] == 5


def test_the_controller_gets_its_environment() -> None:
    fields = {"sessionTimeoutSeconds": 5}
    found = container("Deployment", "demo-controller", controller=fields, routing={"localityThresholdTokens": 9})
    assert variables(found) == {
        "AUTELLIX_CONTROLLER_LISTEN": "0.0.0.0:8080",
        "AUTELLIX_CONTROLLER_TABLE": "etcds://demo-etcd.space.svc:2379",
        "AUTELLIX_CONTROLLER_TABLE_CA_FILE": "/etc/autellix/table/table-client/ca.crt",
        "AUTELLIX_CONTROLLER_TABLE_CERTIFICATE_FILE": "/etc/autellix/table/table-client/tls.crt",
        "AUTELLIX_CONTROLLER_TABLE_KEY_FILE": "/etc/autellix/table/table-client/tls.key",
        "AUTELLIX_CONTROLLER_TABLE_PREFIX": "/autellix/space/demo",
        "AUTELLIX_CONTROLLER_ENGINES": "kubernetes://space/demo-engine",
        "AUTELLIX_CONTROLLER_REPLICA": {"fieldRef": {"fieldPath": "metadata.name"}},
        "AUTELLIX_CONTROLLER_ROUTING_POLICY": "autellix",
        "AUTELLIX_CONTROLLER_LOCALITY_THRESHOLD_TOKENS": "9",
        "AUTELLIX_CONTROLLER_SPILL_RATIO": "1.5",
        "AUTELLIX_CONTROLLER_SPILL_CALLS": "8",
        "AUTELLIX_CONTROLLER_SPILL_TOKENS": "4096",
        "AUTELLIX_CONTROLLER_DRAIN_NOTICE_SECONDS": "3",
        "AUTELLIX_CONTROLLER_DRAIN_SECONDS": "120",
        "AUTELLIX_CONTROLLER_ENGINE_CALLS": "1024",
        "AUTELLIX_CONTROLLER_QUEUE_CALLS": "1024",
        "AUTELLIX_CONTROLLER_QUEUE_SECONDS": "30",
        "AUTELLIX_CONTROLLER_HOLD_SECONDS": "0",
        "AUTELLIX_CONTROLLER_BODIES_LIMIT_BYTES": str(256 << 20),
        "AUTELLIX_CONTROLLER_MAX_CALLS": "4096",
        "AUTELLIX_CONTROLLER_BODY_LIMIT_BYTES": str(32 << 20),
        "AUTELLIX_CONTROLLER_ANSWER_LIMIT_BYTES": str(64 << 20),
        "AUTELLIX_CONTROLLER_BODY_DEADLINE_SECONDS": "60",
        "AUTELLIX_CONTROLLER_CONNECT_DEADLINE_SECONDS": "5",
        "AUTELLIX_CONTROLLER_FIRST_BYTE_DEADLINE_SECONDS": "600",
        "AUTELLIX_CONTROLLER_IDLE_DEADLINE_SECONDS": "120",
        "AUTELLIX_CONTROLLER_TOTAL_DEADLINE_SECONDS": "3600",
        "AUTELLIX_CONTROLLER_SESSION_TIMEOUT_SECONDS": "5",
        "AUTELLIX_CONTROLLER_ALLOW_ANONYMOUS": "true",
        "AUTELLIX_CONTROLLER_ENGINE_KEY_FILE": "/etc/autellix/engine-keys/keys",
    }


def test_every_setting_of_the_controllers_is_one_that_they_have_and_the_defaults_are_theirs() -> None:
    prefix = "AUTELLIX_CONTROLLER_"
    ours = {
        name.removeprefix(prefix).lower(): value for name, value in variables(controller()).items() if prefix in name
    }
    assert ours.keys() <= ControllerSettings.model_fields.keys()
    taken = ControllerSettings.model_validate({name: value for name, value in ours.items() if isinstance(value, str)})
    own = {"listen", "engines", "engine_key_file", "drain_seconds", "replica", "allow_anonymous"}
    for name in ours.keys() - own - {name for name in ours if name.startswith("table")}:
        assert getattr(taken, name) == ControllerSettings.model_fields[name].default, name


def test_limits_and_routing_reach_the_controllers() -> None:
    found = container(
        "Deployment",
        "demo-controller",
        controller={
            "sessionHeaders": ["X-Thread-Id", "x-conversation"],
            "prefixCacheIsolation": "Enabled",
            "drainSeconds": 77,
            "limits": {
                "maxCalls": 1,
                "requestMebibytes": 2,
                "responseMebibytes": 3,
                "engineCalls": 10,
                "queueCalls": 11,
                "requestsMebibytes": 12,
            },
            "deadlines": {
                "bodySeconds": 4,
                "connectSeconds": 5,
                "firstByteSeconds": 6,
                "idleSeconds": 7,
                "totalSeconds": 8,
                "queueSeconds": 13,
                "holdSeconds": 3,
            },
        },
        monitoring={"traceEndpoint": "http://collector:4318/v1/traces"},
        routing={"policy": "LeastUsed", "spillRatioPercent": 225, "spillCalls": 9, "spillTokens": 14},
    )
    expected = {
        "MAX_CALLS": "1",
        "ENGINE_CALLS": "10",
        "QUEUE_CALLS": "11",
        "QUEUE_SECONDS": "13",
        "HOLD_SECONDS": "3",
        "BODIES_LIMIT_BYTES": str(12 << 20),
        "SPILL_TOKENS": "14",
        "DRAIN_SECONDS": "77",
        "SESSION_HEADERS": "X-Thread-Id,x-conversation",
        "ISOLATE_PREFIX_CACHE": "true",
        "TRACE_ENDPOINT": "http://collector:4318/v1/traces",
        "BODY_LIMIT_BYTES": str(2 << 20),
        "ANSWER_LIMIT_BYTES": str(3 << 20),
        "BODY_DEADLINE_SECONDS": "4",
        "CONNECT_DEADLINE_SECONDS": "5",
        "FIRST_BYTE_DEADLINE_SECONDS": "6",
        "IDLE_DEADLINE_SECONDS": "7",
        "TOTAL_DEADLINE_SECONDS": "8",
        "ROUTING_POLICY": "least_used",
        "SPILL_RATIO": "2.25",
        "SPILL_CALLS": "9",
    }
    assert {f"AUTELLIX_CONTROLLER_{name}": value for name, value in expected.items()}.items() <= variables(
        found
    ).items()


@pytest.mark.parametrize("policy", RoutingPolicy)
def test_every_way_to_route_is_one_that_controllers_know(policy: RoutingPolicy) -> None:
    found = container("Deployment", "demo-controller", routing={"policy": policy.value})
    chosen = variables(found)["AUTELLIX_CONTROLLER_ROUTING_POLICY"]
    assert chosen in typing.get_args(ControllerSettings.model_fields["routing_policy"].annotation)


def test_a_controller_is_not_ended_before_its_calls_had_their_time() -> None:
    pod = objects(controller={"drainSeconds": 300})["Deployment", "demo-controller"]["spec"]["template"]["spec"]
    (found,) = pod["containers"]
    steps = found["lifecycle"]["preStop"]["sleep"]["seconds"] + 300
    steps += int(variables(found)["AUTELLIX_CONTROLLER_DRAIN_NOTICE_SECONDS"])
    assert pod["terminationGracePeriodSeconds"] > steps


def test_the_environment_of_the_spec_comes_after_ours() -> None:
    env = [
        {"name": "A", "value": ""},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
    ]
    assert engine(env=env)["env"][-3:] == env


@pytest.mark.parametrize(
    ("cache", "volume"),
    [
        ({"claimName": "models"}, {"persistentVolumeClaim": {"claimName": "models"}}),
        ({"ephemeralSize": "50Gi"}, {"emptyDir": {"sizeLimit": "50Gi"}}),
    ],
)
def test_models_are_kept_where_the_spec_says(cache: Json, volume: Json) -> None:
    pod = objects(model={"name": "m", "cache": cache})["Deployment", "demo-engine"]["spec"]["template"]["spec"]
    assert {"name": "cache", **volume} in pod["volumes"]
    (found,) = pod["containers"]
    (mount,) = [each for each in found["volumeMounts"] if each["name"] == "cache"]
    assert variables(found)["HF_HOME"].startswith(mount["mountPath"] + "/")


def shared_memory(found: Json) -> str:
    (volume,) = [each for each in found["spec"]["template"]["spec"]["volumes"] if each["name"] == "shm"]
    size: str = volume["emptyDir"]["sizeLimit"]
    return size


@pytest.mark.parametrize(
    ("fields", "requested", "limit", "shared"),
    [
        ({}, "4608Mi", None, "1536Mi"),
        ({"gpu": {"count": 4}}, "9216Mi", None, "3072Mi"),
        ({"tensorParallelSize": 2}, "6144Mi", None, "2048Mi"),
        ({"sharedMemorySize": "8Gi"}, "11264Mi", None, "8Gi"),
        ({"gpu": {}, "swap": {"size": "10Gi"}}, "14848Mi", None, "1536Mi"),
        ({"memory": "64Gi", "gpu": {}, "swap": {"size": "50%"}}, "64Gi", "64Gi", "1536Mi"),
        ({"memory": "64Gi", "gpu": {}}, "64Gi", "64Gi", "1536Mi"),
    ],
)
def test_memory_follows_from_devices_and_shared_memory(
    fields: Json, requested: str, limit: str | None, shared: str
) -> None:
    resources = engine(**fields)["resources"]
    assert resources["requests"]["memory"] == requested
    assert resources.get("limits", {}).get("memory") == limit
    assert shared_memory(objects(engine=fields)["Deployment", "demo-engine"]) == shared


def test_weights_count_as_memory_of_the_container_where_there_are_no_gpus() -> None:
    model = {"name": "m", "weightsSize": "10Gi"}

    def requested(**fields: Json) -> Json:
        return container("Deployment", "demo-engine", model=model, engine=fields)["resources"]["requests"]["memory"]

    assert (requested(), requested(gpu={})) == ("14848Mi", "4608Mi")


def test_pull_secrets_and_priority_are_those_of_all_pods() -> None:
    found = objects(imagePullSecrets=[{"name": "a"}, {"name": "b"}], priorityClassName="high")
    templates = list(pod_templates(list(found.values())))
    assert len(templates) == 3
    for each in templates:
        assert each["spec"]["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
        assert each["spec"]["priorityClassName"] == "high"


def test_accounts_of_the_spec_take_the_place_of_ours() -> None:
    found = objects(engine={"serviceAccountName": "e"}, controller={"serviceAccountName": "c"})
    assert ("ServiceAccount", "demo-engine") not in found
    assert ("ServiceAccount", "demo-controller") not in found
    accounts = [
        found["Deployment", name]["spec"]["template"]["spec"]["serviceAccountName"]
        for name in ("demo-engine", "demo-controller")
    ]
    assert accounts == ["e", "c"]
    assert [each["name"] for each in found["RoleBinding", "demo-controller"]["subjects"]] == ["c"]


def test_budgets_are_those_of_the_spec() -> None:
    fields = {"podDisruptionBudget": {"maxUnavailable": 3}}
    found = objects(engine=fields, controller={"podDisruptionBudget": {"maxUnavailable": 0}})
    budgets = {name: each["spec"]["maxUnavailable"] for (kind, name), each in found.items() if "Budget" in kind}
    assert budgets == {"demo-engine": 3, "demo-controller": 0, "demo-etcd": 1}


def test_what_does_not_start_keeps_no_node_from_being_drained_but_a_member_short_does() -> None:
    policies = {
        name: each["spec"]["unhealthyPodEvictionPolicy"] for (kind, name), each in objects().items() if "Budget" in kind
    }
    assert policies == {"demo-engine": "AlwaysAllow", "demo-controller": "AlwaysAllow", "demo-etcd": "IfHealthyBudget"}


def admitted(found: Json, component: str) -> dict[int, Json]:
    ingress = found["NetworkPolicy", f"demo-{component}"]["spec"]["ingress"]
    return {each["ports"][0]["port"]: each.get("from", "everybody") for each in ingress}


def selects(component: str) -> Json:
    return {"podSelector": {"matchLabels": CLUSTER.selector(Component(component))}}


def test_policies_of_the_network_admit_what_talks_and_nothing_else() -> None:
    assert not any(kind == "NetworkPolicy" for kind, _ in objects())
    found = objects(networkPolicy={"mode": "Enabled"})
    assert admitted(found, "engine") == {8000: [selects("controller")]}
    assert admitted(found, "controller") == {8080: "everybody"}
    assert admitted(found, "etcd") == {2379: [selects("controller"), selects("etcd")], 2380: [selects("etcd")]}
    for name in ("engine", "controller", "etcd"):
        policy = found["NetworkPolicy", f"demo-{name}"]["spec"]
        assert policy["policyTypes"] == ["Ingress"]
        kind = "StatefulSet" if name == "etcd" else "Deployment"
        labels = found[kind, f"demo-{name}"]["spec"]["template"]["metadata"]["labels"]
        assert policy["podSelector"]["matchLabels"].items() <= labels.items()


def test_policies_of_the_network_admit_whom_the_spec_names_and_the_operator() -> None:
    prometheus = {"namespaceLabels": {"team": "ops"}, "podLabels": {"app": "prometheus"}}
    wanted = {
        "mode": "Enabled",
        "clientsFrom": [{"cidr": "10.0.0.0/8"}, {"podLabels": {}}],
        "metricsFrom": [prometheus],
    }
    spec = spec_of(networkPolicy=wanted)
    objects = desired_objects(CLUSTER, spec, IMAGES, DIGESTS, "system")
    found = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    metrics = {
        "namespaceSelector": {"matchLabels": {"team": "ops"}},
        "podSelector": {"matchLabels": {"app": "prometheus"}},
    }
    operator = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "system"}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "autellix-operator"}},
    }
    clients = [{"ipBlock": {"cidr": "10.0.0.0/8"}}, {"podSelector": {"matchLabels": {}}}]
    assert admitted(found, "controller") == {8080: [*clients, metrics, operator]}
    assert admitted(found, "engine") == {8000: [selects("controller"), metrics, operator]}
    assert admitted(found, "etcd")[2381] == [metrics, operator]


def test_monitors_find_ports_that_are_there_and_labels_of_the_spec() -> None:
    found = objects(monitoring={"monitors": "Enabled", "labels": {"release": "prometheus"}, "intervalSeconds": 7})
    service = found["Service", "demo"]
    monitor = found["ServiceMonitor", "demo-controller"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
    assert endpoint["interval"] == "7s"
    for kind, name in (("Deployment", "demo-engine"), ("StatefulSet", "demo-etcd")):
        (scraped,) = found["PodMonitor", name]["spec"]["podMetricsEndpoints"]
        ports = found[kind, name]["spec"]["template"]["spec"]["containers"][0]["ports"]
        assert scraped["port"] in [port["name"] for port in ports]
    assert ("PrometheusRule", "demo-controller") not in found


def test_every_metric_of_an_alert_is_one_that_controllers_export() -> None:
    exported = inspect.getsource(autellix_controller.metrics)
    (rule,) = [each for key, each in objects(monitoring={"alerts": "Enabled"}).items() if key[0] == "PrometheusRule"]
    alerts = rule["spec"]["groups"][0]["rules"]
    assert len(alerts) == 5
    for alert in alerts:
        for name in re.findall(r"autellix_controller_([a-z_]+)\{", alert["expr"]):
            assert re.search(rf'"{name.removesuffix("_total")}"|\}}{name.removesuffix("_total")}"', exported), name
        ours = ('namespace="space",service="demo"', 'cluster_namespace="space",cluster="demo"')
        assert any(each in alert["expr"] for each in ours)


def test_volumes_of_etcd_go_or_stay_as_the_spec_says() -> None:
    cases: list[tuple[Json, str]] = [({}, "Delete"), ({"whenDeleted": "Retain"}, "Retain")]
    for asked, expected in cases:
        found = objects(processTable={"etcd": {"managed": asked}})["StatefulSet", "demo-etcd"]
        assert found["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == expected


def test_etcd_can_be_changed_by_a_template_and_keeps_its_arguments() -> None:
    managed: Json = {"template": {"spec": {"nodeSelector": {"disk": "fast"}}}}
    found = objects(processTable={"etcd": {"managed": managed}})["StatefulSet", "demo-etcd"]
    assert found["spec"]["template"]["spec"]["nodeSelector"] == {"disk": "fast"}
    managed["template"] = {"spec": {"containers": [{"name": "etcd", "args": []}]}}
    with pytest.raises(
        InvalidSpec, match=r"^spec\.processTable\.etcd\.managed\.template\.spec\.containers\[etcd\]\.args"
    ):
        objects(processTable={"etcd": {"managed": managed}})


def test_api_keys_come_as_a_file_and_close_the_endpoint_to_others() -> None:
    fields = {"apiKeysSecretRef": {"name": "keys", "key": "users"}}
    pod = objects(controller=fields)["Deployment", "demo-controller"]["spec"]["template"]["spec"]
    found = variables(pod["containers"][0])
    assert "AUTELLIX_CONTROLLER_ALLOW_ANONYMOUS" not in found
    path = found["AUTELLIX_CONTROLLER_API_KEYS_FILE"]
    mounts = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    assert path == mounts["api-keys"] + "/keys"
    assert {"name": "api-keys", "secret": {"secretName": "keys", "items": [{"key": "users", "path": "keys"}]}} in pod[
        "volumes"
    ]


def mounted_files(found: Json) -> set[str]:
    """Every file of a Secret in the containers of a workload."""
    pod = found["spec"]["template"]["spec"]
    keys = {each["name"]: [item["path"] for item in each.get("secret", {}).get("items", [])] for each in pod["volumes"]}
    mounts = pod["containers"][0]["volumeMounts"]
    return {f"{mount['mountPath']}/{path}" for mount in mounts for path in keys.get(mount["name"], [])}


@pytest.mark.parametrize(
    "etcd",
    [
        {"managed": {}},
        {"endpoints": ["a:1"], "tls": {}},
        {"endpoints": ["a:1"], "tls": {"caSecretRef": {"name": "ca", "key": "root.pem"}}},
        {
            "endpoints": ["a:1", "b:2"],
            "tls": {"caSecretRef": {"name": "ca"}, "certificateSecretRef": {"name": "me"}},
            "user": "root",
            "passwordSecretRef": {"name": "pass", "key": "word"},
        },
    ],
)
def test_what_controllers_show_to_etcd_is_mounted_and_a_setting_that_they_take(etcd: Json) -> None:
    found = objects(processTable={"etcd": etcd})["Deployment", "demo-controller"]
    prefix = "AUTELLIX_CONTROLLER_TABLE"
    values = variables(found["spec"]["template"]["spec"]["containers"][0])
    ours = {
        name.removeprefix("AUTELLIX_CONTROLLER_").lower(): value for name, value in values.items() if prefix in name
    }
    TableSettings.model_validate(ours)
    assert ours["table"].startswith("etcds://")
    assert {value for name, value in ours.items() if name.endswith("_file")} == {
        path for path in mounted_files(found) if "/table/" in path
    }
    assert ours.get("table_user") == etcd.get("user")


def test_members_show_and_ask_for_certificates_on_every_port_but_that_of_metrics() -> None:
    found = container("StatefulSet", "demo-etcd")
    urls = [each for each in found["args"] if "://" in each]
    assert len(urls) == 6
    assert all("https://" in each for each in urls if "metrics" not in each)
    assert {"--client-cert-auth", "--peer-client-cert-auth", "--peer-cert-allowed-cn=demo-etcd"} <= set(found["args"])


def test_etcd_members_know_one_another() -> None:
    found = container("StatefulSet", "demo-etcd", processTable={"etcd": {"managed": {"replicas": 3}}})
    arguments = dict(each.removeprefix("--").split("=", 1) for each in found["args"] if "=" in each)
    assert arguments["initial-cluster"].split(",") == [
        f"demo-etcd-{index}=https://demo-etcd-{index}.demo-etcd.space.svc:2380" for index in range(3)
    ]
    assert arguments["initial-advertise-peer-urls"] == "https://$(POD_NAME).demo-etcd.space.svc:2380"


@pytest.mark.parametrize(("size", "quota"), [("512Mi", 256 << 20), ("2Gi", 1 << 30), ("1Ti", 8 << 30)])
def test_the_database_leaves_room_for_its_log(size: str, quota: int) -> None:
    assert quota_bytes(size) == quota


def test_images_of_the_spec_win_over_those_of_the_operator() -> None:
    assert engine()["image"] == "engine:1"
    assert engine(image="mine:2")["image"] == "mine:2"
    managed = {"etcd": {"managed": {"image": "mine:3"}}}
    assert container("StatefulSet", "demo-etcd", processTable=managed)["image"] == "mine:3"
    assert container("Deployment", "demo-controller", controller={"image": "mine:4"})["image"] == "mine:4"


def test_digests_follow_the_contents_and_nobody_can_guess_at_them() -> None:
    assert contents_digest("salt", ["one"]) == contents_digest("salt", ["one"]) != contents_digest("salt", ["other"])
    assert contents_digest("salt", ["one"]) != contents_digest("other", ["one"])
    assert contents_digest("salt", []) == ""


@pytest.mark.parametrize("part", ["engine", "controller"])
def test_the_keys_of_engines_come_as_a_file_that_is_replaced_in_place(part: str) -> None:
    found = objects()["Deployment", f"demo-{part}"]
    assert "/etc/autellix/engine-keys/keys" in mounted_files(found)
    (mount,) = [
        each
        for each in found["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
        if each["name"] == "engine-keys"
    ]
    assert mount.keys() == {"name", "mountPath", "readOnly"}, "a mount with a subPath would never change"
    assert "engine-key-digest" not in str(found)


specs = st.fixed_dictionaries(
    {},
    optional={
        "engine": st.fixed_dictionaries(
            {},
            optional={
                "replicas": st.integers(0, 1000),
                "gpu": st.fixed_dictionaries({}, optional={"count": st.integers(1, 64)}),
                "maxSequences": st.integers(1, 65_536),
                "drainSeconds": st.integers(0, 86_400),
                "extraArgs": st.lists(st.sampled_from(["--enforce-eager", "--seed=1", "x"]), max_size=3),
            },
        ),
        "scheduling": st.fixed_dictionaries(
            {}, optional={"policy": st.sampled_from(["Atlas", "Plas", "Mlfq", "Fcfs"]), "spareCalls": st.integers(0, 9)}
        ),
        "controller": st.fixed_dictionaries(
            {},
            optional={
                "replicas": st.integers(1, 100),
                "apiKeysSecretRef": st.just({"name": "keys"}),
                "service": st.fixed_dictionaries({}, optional={"port": st.integers(1, 65_535)}),
            },
        ),
        "processTable": st.sampled_from(
            [{}, {"etcd": {"managed": {"replicas": 3}}}, {"etcd": {"endpoints": ["etcd.example:2379"]}}]
        ),
    },
)


def pod_templates(found: list[dict[str, Json]]) -> Iterator[dict[str, Json]]:
    return (each["spec"]["template"] for each in found if each["kind"] in ("Deployment", "StatefulSet"))


@settings(deadline=None)
@given(specs)
def test_the_same_spec_gives_the_same_objects(fields: dict[str, Json]) -> None:
    first, second = (desired_objects(CLUSTER, spec_of(**fields), IMAGES, DIGESTS) for _ in range(2))
    assert json.dumps(first) == json.dumps(second)


@settings(deadline=None)
@given(specs)
def test_every_object_is_labelled_owned_and_ours_alone(fields: dict[str, Json]) -> None:
    found = desired_objects(CLUSTER, spec_of(**fields), IMAGES, DIGESTS)
    assert len({(each["kind"], each["metadata"]["name"]) for each in found}) == len(found)
    for each in found:
        metadata = each["metadata"]
        assert metadata["namespace"] == "space"
        assert metadata["labels"]["autellix.dev/cluster"] == "demo"
        assert metadata["labels"]["app.kubernetes.io/managed-by"] == "autellix-operator"
        assert [owner["uid"] for owner in metadata["ownerReferences"]] == ["uid-demo"]
        assert metadata["ownerReferences"][0]["controller"] is True


@settings(deadline=None)
@given(specs)
def test_every_pod_is_restricted_and_selected_by_its_own_workload_only(fields: dict[str, Json]) -> None:
    found = desired_objects(CLUSTER, spec_of(**fields), IMAGES, DIGESTS)
    selectors = [
        each["spec"]["selector"]["matchLabels"] for each in found if each["kind"] in ("Deployment", "StatefulSet")
    ]
    for template in pod_templates(found):
        labels = template["metadata"]["labels"]
        assert sum(selector.items() <= labels.items() for selector in selectors) == 1
        pod = template["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        component = labels["app.kubernetes.io/component"]
        assert pod["automountServiceAccountToken"] is (component == "controller")
        for each in pod["containers"]:
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_no_container_is_left_without_a_share_of_the_cpu() -> None:
    # A pod without requests has the smallest weight there is: beside a busy engine it stands still for seconds.
    for template in pod_templates(list(objects().values())):
        for each in template["spec"]["containers"]:
            assert each["resources"]["requests"]["cpu"], each["name"]
