"""Every rule of the API on a real API server: what it accepts, what it refuses, and that a refusal names the field.

The operator's own models judge each case too: both sides must agree.
"""

import copy
from typing import Any

import pytest
import yaml

from autellix_operator.api.arguments import RESERVED_ARGUMENTS, RESERVED_FAMILIES
from autellix_operator.api.base import InvalidSpec
from autellix_operator.api.spec import parse_spec
from support.apiserver import ApiError
from support.chart import CRD
from support.operator_bench import Bench, cluster

Spec = dict[str, Any]


def engine(**fields: Any) -> Spec:
    return {"engine": fields}


def scheduling(**fields: Any) -> Spec:
    return {"scheduling": fields}


def controller(**fields: Any) -> Spec:
    return {"controller": fields}


def network(**fields: Any) -> Spec:
    return {"networkPolicy": {"mode": "Enabled", **fields}}


def etcd(**fields: Any) -> Spec:
    return {"processTable": {"etcd": fields}}


ACCEPTED: dict[str, Spec] = {
    "the least": {},
    "a path as model": {"model": {"name": "/models/tiny"}},
    "a model with all": {
        "model": {
            "name": "org/model-1.5B",
            "servedName": "m:latest",
            "revision": "refs/pr/1",
            "tokenSecretRef": {"name": "t"},
        }
    },
    "a shared cache": {"model": {"name": "m", "cache": {"claimName": "models"}}},
    "a cache of each engine": {"model": {"name": "m", "cache": {"ephemeralSize": "50Gi"}}},
    "a model that just fits": {
        "model": {"name": "m", "weightsSize": "143Gi"},
        **engine(gpu={"count": 2, "memory": "80Gi"}),
    },
    "a model that just fits into memory": {"model": {"name": "m", "weightsSize": "10Gi"}, **engine(memory="14848Mi")},
    "weights of GPUs in little memory": {
        "model": {"name": "m", "weightsSize": "60Gi"},
        **engine(gpu={}, memory="4608Mi"),
    },
    "memory of several devices": engine(gpu={"count": 4}, memory="9Gi"),
    "memory of a model over several CPUs": engine(tensorParallelSize=2, memory="6Gi"),
    "GPUs of unknown memory": {"model": {"name": "m", "weightsSize": "144Gi"}, **engine(gpu={})},
    "memory": engine(memory="15Gi", sharedMemorySize="4Gi", swap={"size": "8Gi"}),
    "swapping into a share of memory": engine(memory="14Gi", sharedMemorySize="4Gi", swap={"size": "50%"}),
    "swapping into most of the memory": engine(memory="50Gi", sharedMemorySize="2Gi", swap={"size": "90%"}),
    "swapping, prepared": engine(swap={"size": "8Gi", "prefetchSeconds": 3600}),
    "variables": engine(
        env=[
            {"name": "A", "value": ""},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
        ]
    ),
    "accounts and budgets": {
        **engine(serviceAccountName="a", podDisruptionBudget={"maxUnavailable": 0}),
        **controller(serviceAccountName="b", podDisruptionBudget={"maxUnavailable": 100}),
    },
    "limits": controller(limits={"maxCalls": 1, "requestMebibytes": 2047, "responseMebibytes": 1}),
    "more limits": controller(
        limits={"engineCalls": 1, "queueCalls": 0, "requestsMebibytes": 1}, deadlines={"queueSeconds": 1}
    ),
    "ways of tools": controller(sessionHeaders=["X-Thread-Id"], prefixCacheIsolation="Enabled", drainSeconds=1),
    "traces": {"monitoring": {"traceEndpoint": "http://collector.monitoring.svc:4318/v1/traces"}},
    "deadlines": controller(deadlines={"firstByteSeconds": 5, "totalSeconds": 5}),
    "calls that are held": controller(deadlines={"holdSeconds": 3600}),
    "calls that are not held, without a queue": controller(deadlines={"holdSeconds": 0}, limits={"queueCalls": 0}),
    "routing without programs": {"routing": {"policy": "RoundRobin"}},
    "spilling": {"routing": {"spillRatioPercent": 100, "spillCalls": 1}},
    "pull secrets and priority": {"imagePullSecrets": [{"name": "a"}, {"name": "b"}], "priorityClassName": "high"},
    "monitoring": {
        "monitoring": {"monitors": "Enabled", "alerts": "Enabled", "labels": {"a/b": "c"}, "intervalSeconds": 5}
    },
    "a network": network(
        clientsFrom=[{"cidr": "10.0.0.0/8"}, {"cidr": "fd00::/8"}, {"podLabels": {"a": "b"}, "namespaceLabels": {}}],
        metricsFrom=[{"namespaceLabels": {"a": "b"}}],
    ),
    "etcd elsewhere over TLS": etcd(endpoints=["a:1"], tls={}),
    "etcd elsewhere with all": etcd(
        endpoints=["a:1"],
        tls={"caSecretRef": {"name": "ca"}, "certificateSecretRef": {"name": "me"}},
        user="root",
        passwordSecretRef={"name": "pass"},
    ),
    "volumes that stay": etcd(managed={"whenDeleted": "Retain", "template": {"spec": {"x-new": 1}}}),
    "no engines": engine(replicas=0),
    "many engines": engine(replicas=1000),
    "an image with a digest": engine(image="registry.example:5000/engine@sha256:abc"),
    "GPUs": engine(gpu={}),
    "GPUs and the same parallel size": engine(gpu={"count": 4}, tensorParallelSize=4),
    "GPUs of another maker": engine(gpu={"count": 2, "resourceName": "amd.com/gpu"}),
    "parallel on CPUs": engine(tensorParallelSize=2),
    "memory share": engine(gpuMemoryUtilizationPercent=90),
    "lengths": engine(maxModelLength=131072, maxSequences=256),
    "arguments": engine(
        extraArgs=["--enforce-eager", "--dtype=bfloat16", "--seed", "-1", "--max-num-batched-tokens=99"]
    ),
    "times": engine(startupTimeoutSeconds=30, drainSeconds=0),
    "an update in place": engine(update={"maxSurge": 0, "maxUnavailable": 1}),
    "any template": engine(template={"spec": {"containers": [{"name": "engine", "x-new": {"a": 1}}]}}),
    "each policy: Atlas": scheduling(policy="Atlas"),
    "each policy: Plas": scheduling(policy="Plas"),
    "each policy: Mlfq": scheduling(policy="Mlfq"),
    "each policy: Fcfs": scheduling(policy="Fcfs"),
    "bounds": scheduling(queueBoundsMilliseconds=[1, 2, 3]),
    "bounds and quanta": scheduling(queueBoundsMilliseconds=[10, 20], quantaMilliseconds=[5, 5]),
    "one queue": scheduling(queueBoundsMilliseconds=[]),
    "a long memory": {**scheduling(programIdleSeconds=7200), **controller(sessionTimeoutSeconds=7200)},
    "a threshold": {"routing": {"localityThresholdTokens": 2048}},
    "a load balancer": controller(service={"type": "LoadBalancer", "port": 8080, "annotations": {"a/b": "c"}}),
    "keys": controller(apiKeysSecretRef={"name": "keys", "key": "users.txt"}),
    "three members": etcd(managed={"replicas": 3, "storage": {"size": "512Mi", "className": "fast"}}),
    "etcd elsewhere": etcd(endpoints=["etcd-0.example:2379", "10.0.0.1:2379"]),
}

REFUSED: dict[str, tuple[Spec, str]] = {
    "no model": ({"model": None}, "spec.model"),
    "no name of the model": ({"model": {}}, "spec.model.name"),
    "a model that is an argument": ({"model": {"name": "--port=1"}}, "spec.model.name"),
    "a model with a space": ({"model": {"name": "a b"}}, "spec.model.name"),
    "a served name that is an argument": ({"model": {"name": "m", "servedName": "-x"}}, "spec.model.servedName"),
    "a revision that is an argument": ({"model": {"name": "m", "revision": "-x"}}, "spec.model.revision"),
    "a token without a name": ({"model": {"name": "m", "tokenSecretRef": {}}}, "spec.model.tokenSecretRef.name"),
    "both caches": ({"model": {"name": "m", "cache": {"claimName": "a", "ephemeralSize": "1Gi"}}}, "spec.model.cache"),
    "neither cache": ({"model": {"name": "m", "cache": {}}}, "spec.model.cache"),
    "a cache with a slash": ({"model": {"name": "m", "cache": {"claimName": "a/b"}}}, "spec.model.cache.claimName"),
    "a cache without a unit": (
        {"model": {"name": "m", "cache": {"ephemeralSize": "1"}}},
        "spec.model.cache.ephemeralSize",
    ),
    "weights without a unit": ({"model": {"name": "m", "weightsSize": "7B"}}, "spec.model.weightsSize"),
    "a model that leaves no room for KV cache": (
        {"model": {"name": "m", "weightsSize": "144Gi"}, **engine(gpu={"count": 2, "memory": "80Gi"})},
        "spec",
    ),
    "a model that does not fit into the share": (
        {
            "model": {"name": "m", "weightsSize": "40Gi"},
            **engine(gpu={"memory": "80Gi"}, gpuMemoryUtilizationPercent=50),
        },
        "spec",
    ),
    "a model that does not fit into memory": (
        {"model": {"name": "m", "weightsSize": "10Gi"}, **engine(memory="14847Mi")},
        "spec.engine.memory",
    ),
    "a model that does not fit beside what is swapped": (
        {"model": {"name": "m", "weightsSize": "8Gi"}, **engine(memory="10Gi", swap={"size": "8Gi"})},
        "spec.engine.memory",
    ),
    "memory for fewer devices": (engine(gpu={"count": 4}, memory="9215Mi"), "spec.engine.memory"),
    "memory for fewer CPUs": (engine(tensorParallelSize=2, memory="6143Mi"), "spec.engine.memory"),
    "GPU memory without a unit": (engine(gpu={"memory": "80G"}), "spec.engine.gpu.memory"),
    "memory without a unit": (engine(memory="1.5Gi"), "spec.engine.memory"),
    "no shared memory": (engine(sharedMemorySize="0Gi"), "spec.engine.sharedMemorySize"),
    "more shared memory than memory": (engine(memory="8Gi", sharedMemorySize="8Gi"), "spec.engine.memory"),
    "more swap than memory": (engine(memory="8Gi", swap={"size": "8Gi"}), "spec.engine.memory"),
    "more parts than memory": (
        engine(memory="15359Mi", sharedMemorySize="4Gi", swap={"size": "8Gi"}),
        "spec.engine.memory",
    ),
    "a share that leaves too little": (
        engine(memory="14335Mi", sharedMemorySize="4Gi", swap={"size": "50%"}),
        "spec.engine.memory",
    ),
    "a share of nothing": (engine(swap={"size": "50%"}), "spec.engine.swap.size"),
    "swap without a size": (engine(swap={}), "spec.engine.swap.size"),
    "swap into all memory": (engine(swap={"size": "100%"}), "spec.engine.swap.size"),
    "a variable of the system": (engine(env=[{"name": "HF_HOME", "value": "x"}]), "spec.engine.env"),
    "a variable of ours": (engine(env=[{"name": "AUTELLIX_X", "value": "x"}]), "spec.engine.env"),
    "a variable with a dash": (engine(env=[{"name": "A-B", "value": "x"}]), "spec.engine.env"),
    "a variable twice": (engine(env=[{"name": "A", "value": "x"}] * 2), "spec.engine.env"),
    "a variable without a value": (engine(env=[{"name": "A"}]), "spec.engine.env"),
    "a variable from nowhere": (engine(env=[{"name": "A", "valueFrom": {}}]), "spec.engine.env"),
    "a variable from two places": (
        engine(
            env=[
                {
                    "name": "A",
                    "valueFrom": {
                        "secretKeyRef": {"name": "a", "key": "b"},
                        "configMapKeyRef": {"name": "a", "key": "b"},
                    },
                }
            ]
        ),
        "spec.engine.env",
    ),
    "a variable from a Secret without a key": (
        engine(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a"}}}]),
        "spec.engine.env",
    ),
    "an account with capitals": (engine(serviceAccountName="A"), "spec.engine.serviceAccountName"),
    "fewer than none away": (
        engine(podDisruptionBudget={"maxUnavailable": -1}),
        "spec.engine.podDisruptionBudget.maxUnavailable",
    ),
    "no calls": (controller(limits={"maxCalls": 0}), "spec.controller.limits.maxCalls"),
    "no calls on an engine": (controller(limits={"engineCalls": 0}), "spec.controller.limits.engineCalls"),
    "fewer than none in the queue": (controller(limits={"queueCalls": -1}), "spec.controller.limits.queueCalls"),
    "no room for requests": (controller(limits={"requestsMebibytes": 0}), "spec.controller.limits.requestsMebibytes"),
    "no time in the queue": (controller(deadlines={"queueSeconds": 0}), "spec.controller.deadlines.queueSeconds"),
    "a header with a space": (controller(sessionHeaders=["X A"]), "spec.controller.sessionHeaders"),
    "a header twice": (controller(sessionHeaders=["X-A", "X-A"]), "spec.controller.sessionHeaders"),
    "isolation as a boolean": (controller(prefixCacheIsolation=True), "spec.controller.prefixCacheIsolation"),
    "no time to end": (controller(drainSeconds=0), "spec.controller.drainSeconds"),
    "traces to a user": ({"monitoring": {"traceEndpoint": "http://me@there"}}, "spec.monitoring.traceEndpoint"),
    "spilling for nothing": ({"routing": {"spillTokens": 0}}, "spec.routing.spillTokens"),
    "requests too large": (controller(limits={"requestMebibytes": 2048}), "spec.controller.limits.requestMebibytes"),
    "no time to connect": (controller(deadlines={"connectSeconds": 0}), "spec.controller.deadlines.connectSeconds"),
    "an answer that begins after its end": (
        controller(deadlines={"firstByteSeconds": 6, "totalSeconds": 5}),
        "spec.controller.deadlines",
    ),
    "calls that are held for longer than they may take": (
        controller(deadlines={"holdSeconds": 6, "firstByteSeconds": 5, "totalSeconds": 5}),
        "spec.controller.deadlines",
    ),
    "calls that are held for less than no time": (
        controller(deadlines={"holdSeconds": -1}),
        "spec.controller.deadlines.holdSeconds",
    ),
    "calls that are held where none may wait": (
        controller(deadlines={"holdSeconds": 60}, limits={"queueCalls": 0}),
        "spec.controller",
    ),
    "an unknown way to route": ({"routing": {"policy": "round_robin"}}, "spec.routing.policy"),
    "spilling to busier engines": ({"routing": {"spillRatioPercent": 99}}, "spec.routing.spillRatioPercent"),
    "spilling at once": ({"routing": {"spillCalls": 0}}, "spec.routing.spillCalls"),
    "a pull secret twice": ({"imagePullSecrets": [{"name": "a"}, {"name": "a"}]}, "spec.imagePullSecrets"),
    "a priority with a space": ({"priorityClassName": "a b"}, "spec.priorityClassName"),
    "a switch that is a boolean": ({"monitoring": {"monitors": True}}, "spec.monitoring.monitors"),
    "no interval": ({"monitoring": {"intervalSeconds": 0}}, "spec.monitoring.intervalSeconds"),
    "an unknown mode": ({"networkPolicy": {"mode": "Off"}}, "spec.networkPolicy.mode"),
    "an address that is no range": (network(clientsFrom=[{"cidr": "10.0.0.1"}]), "spec.networkPolicy.clientsFrom"),
    "a peer that is nobody": (network(metricsFrom=[{}]), "spec.networkPolicy.metricsFrom"),
    "a peer that is both": (
        network(metricsFrom=[{"cidr": "10.0.0.0/8", "podLabels": {}}]),
        "spec.networkPolicy.metricsFrom",
    ),
    "volumes that may stay": (etcd(managed={"whenDeleted": "Keep"}), "spec.processTable.etcd.managed.whenDeleted"),
    "fewer than no engines": (engine(replicas=-1), "spec.engine.replicas"),
    "too many engines": (engine(replicas=1001), "spec.engine.replicas"),
    "half an engine": (engine(replicas=1.5), "spec.engine.replicas"),
    "an image with a space": (engine(image="a b"), "spec.engine.image"),
    "an empty image": (engine(image=""), "spec.engine.image"),
    "an unknown pull policy": (engine(imagePullPolicy="Sometimes"), "spec.engine.imagePullPolicy"),
    "no GPU": (engine(gpu={"count": 0}), "spec.engine.gpu.count"),
    "a GPU without a domain": (engine(gpu={"resourceName": "gpu"}), "spec.engine.gpu.resourceName"),
    "GPUs and another parallel size": (engine(gpu={"count": 4}, tensorParallelSize=2), "spec.engine"),
    "no device": (engine(tensorParallelSize=0), "spec.engine.tensorParallelSize"),
    "no token": (engine(maxModelLength=0), "spec.engine.maxModelLength"),
    "no call": (engine(maxSequences=0), "spec.engine.maxSequences"),
    "all memory": (engine(gpuMemoryUtilizationPercent=100), "spec.engine.gpuMemoryUtilizationPercent"),
    "an empty argument": (engine(extraArgs=[""]), "spec.engine.extraArgs"),
    "an abbreviated argument": (engine(extraArgs=["--scheduler-c=x.Y"]), "spec.engine.extraArgs"),
    "an argument with underscores": (engine(extraArgs=["--api_key", "x"]), "spec.engine.extraArgs"),
    "a part of a reserved argument": (engine(extraArgs=["--additional-config.x=1"]), "spec.engine.extraArgs"),
    "an end of arguments": (engine(extraArgs=["--", "x"]), "spec.engine.extraArgs"),
    "too many arguments": (engine(extraArgs=["x"] * 65), "spec.engine.extraArgs"),
    "too little time to start": (engine(startupTimeoutSeconds=29), "spec.engine.startupTimeoutSeconds"),
    "less than no time to drain": (engine(drainSeconds=-1), "spec.engine.drainSeconds"),
    "an update that cannot go on": (engine(update={"maxSurge": 0}), "spec.engine.update"),
    "an unknown policy": (scheduling(policy="plas"), "spec.scheduling.policy"),
    "bounds that fall": (scheduling(queueBoundsMilliseconds=[2, 1]), "spec.scheduling.queueBoundsMilliseconds"),
    "equal bounds": (scheduling(queueBoundsMilliseconds=[1, 1]), "spec.scheduling.queueBoundsMilliseconds"),
    "a bound of nothing": (scheduling(queueBoundsMilliseconds=[0]), "spec.scheduling.queueBoundsMilliseconds"),
    "too many bounds": (
        scheduling(queueBoundsMilliseconds=list(range(1, 65))),
        "spec.scheduling.queueBoundsMilliseconds",
    ),
    "more quanta than bounds": (
        scheduling(queueBoundsMilliseconds=[1], quantaMilliseconds=[1, 1]),
        "spec.scheduling",
    ),
    "quanta without bounds": (scheduling(quantaMilliseconds=[1]), "spec.scheduling"),
    "no ratio": (scheduling(starvationRatioPercent=0), "spec.scheduling.starvationRatioPercent"),
    "no floor": (scheduling(starvationFloorMilliseconds=0), "spec.scheduling.starvationFloorMilliseconds"),
    "no steps": (scheduling(stepsPerDecision=0), "spec.scheduling.stepsPerDecision"),
    "fewer than no spare calls": (scheduling(spareCalls=-1), "spec.scheduling.spareCalls"),
    "fewer than no preemptions": (scheduling(maxPreemptionsPerStep=-1), "spec.scheduling.maxPreemptionsPerStep"),
    "less than no time to run": (scheduling(minimumRunMilliseconds=-1), "spec.scheduling.minimumRunMilliseconds"),
    "no programs": (scheduling(maxPrograms=0), "spec.scheduling.maxPrograms"),
    "engines that forget before controllers do": (scheduling(programIdleSeconds=3599), "spec"),
    "less than no threshold": ({"routing": {"localityThresholdTokens": -1}}, "spec.routing.localityThresholdTokens"),
    "no controller": (controller(replicas=0), "spec.controller.replicas"),
    "no session": (controller(sessionTimeoutSeconds=0), "spec.controller.sessionTimeoutSeconds"),
    "keys without a name": (controller(apiKeysSecretRef={}), "spec.controller.apiKeysSecretRef.name"),
    "a key with a slash": (
        controller(apiKeysSecretRef={"name": "a", "key": "a/b"}),
        "spec.controller.apiKeysSecretRef.key",
    ),
    "an unknown type of service": (controller(service={"type": "ExternalName"}), "spec.controller.service.type"),
    "no port": (controller(service={"port": 0}), "spec.controller.service.port"),
    "an annotation that is a number": (
        controller(service={"annotations": {"a": 1}}),
        "spec.controller.service.annotations",
    ),
    "both etcds": (etcd(managed={}, endpoints=["a:1"]), "spec.processTable.etcd"),
    "neither etcd": (etcd(), "spec.processTable.etcd"),
    "two members": (etcd(managed={"replicas": 2}), "spec.processTable.etcd.managed.replicas"),
    "a small volume": (etcd(managed={"storage": {"size": "511Mi"}}), "spec.processTable.etcd.managed.storage.size"),
    "a volume without a unit": (
        etcd(managed={"storage": {"size": "1"}}),
        "spec.processTable.etcd.managed.storage.size",
    ),
    "a class with capitals": (
        etcd(managed={"storage": {"className": "Fast"}}),
        "spec.processTable.etcd.managed.storage.className",
    ),
    "certificates for our own etcd": (etcd(managed={}, tls={}), "spec.processTable.etcd"),
    "a user of our own etcd": (
        etcd(managed={}, user="root", passwordSecretRef={"name": "pass"}),
        "spec.processTable.etcd",
    ),
    "a user without a password": (etcd(endpoints=["a:1"], user="root"), "spec.processTable.etcd"),
    "a password without a user": (
        etcd(endpoints=["a:1"], passwordSecretRef={"name": "pass"}),
        "spec.processTable.etcd",
    ),
    "an authority without a name": (
        etcd(endpoints=["a:1"], tls={"caSecretRef": {}}),
        "spec.processTable.etcd.tls.caSecretRef.name",
    ),
    "no endpoints": (etcd(endpoints=[]), "spec.processTable.etcd.endpoints"),
    "an endpoint with a scheme": (etcd(endpoints=["http://a:1"]), "spec.processTable.etcd.endpoints"),
    "an endpoint without a port": (etcd(endpoints=["etcd.example"]), "spec.processTable.etcd.endpoints"),
}
for argument in (*RESERVED_ARGUMENTS, *(f"{family}x" for family in RESERVED_FAMILIES)):
    spec_with_it = engine(extraArgs=["x", f"{argument}=1"])
    REFUSED[f"the reserved argument {argument}"] = (spec_with_it, "spec.engine.extraArgs")


def rules(schema: Any) -> list[str]:
    """The messages of all rules across fields; those that compare with what was before have a test of their own."""
    if isinstance(schema, list):
        return [message for each in schema for message in rules(each)]
    if not isinstance(schema, dict):
        return []
    own = [each for each in schema.get("x-kubernetes-validations", ()) if "oldSelf" not in each["rule"]]
    return [each["message"] for each in own] + [message for each in schema.values() for message in rules(each)]


NAMES = {
    "a": True,
    "my-cluster-2": True,
    "a" * 40: True,
    "a" * 41: False,
    "2-clusters": False,
    "with.dots": False,
}


def manifest(spec: Spec, name: str = "demo") -> dict[str, Any]:
    return cluster(name, **copy.deepcopy(spec))


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(bench: Bench, name: str) -> None:
    stored = bench.create("autellixclusters", manifest(ACCEPTED[name]))
    parse_spec(stored)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_field(bench: Bench, name: str) -> None:
    spec, field = REFUSED[name]
    with pytest.raises(ApiError) as refusal:
        bench.create("autellixclusters", manifest(spec))
    assert refusal.value.status == 422, refusal.value
    causes = [cause["field"] for cause in refusal.value.body["details"]["causes"]]
    assert any(cause == field or cause.startswith((field + ".", field + "[")) for cause in causes), causes
    with pytest.raises(InvalidSpec, match=r"^spec"):
        parse_spec({"metadata": {"name": "demo"}, **manifest(spec)})


def test_every_rule_has_a_case_that_it_refuses(bench: Bench) -> None:
    path = bench.path("autellixclusters") + "?dryRun=All"
    attempts = [manifest(spec) for spec, _ in REFUSED.values()]
    attempts += [manifest({}, name) for name, accepted in NAMES.items() if not accepted]
    said = []
    for attempt in attempts:
        with pytest.raises(ApiError) as refusal:
            bench.admin.request("POST", path, attempt)
        said += [cause["message"] for cause in refusal.value.body["details"]["causes"]]
    (version,) = yaml.safe_load(CRD.read_text())["spec"]["versions"]
    known = set(rules(version["schema"]["openAPIV3Schema"]))
    assert len(known) > 20
    assert {rule for rule in known if not any(rule in message for message in said)} == set()


@pytest.mark.parametrize("name", NAMES)
def test_names(bench: Bench, name: str) -> None:
    if NAMES[name]:
        parse_spec(bench.create("autellixclusters", manifest({}, name)))
    else:
        with pytest.raises(ApiError, match=r"metadata\.name"):
            bench.create("autellixclusters", manifest({}, name))
        with pytest.raises(InvalidSpec, match=r"^metadata\.name"):
            parse_spec(manifest({}, name))


@pytest.mark.parametrize(
    ("before", "change", "message"),
    [
        ({}, {"managed": {"replicas": 3}}, "replicas cannot be changed"),
        ({}, {"managed": {"storage": {"size": "3Gi"}}}, "storage cannot be changed"),
        ({}, {"managed": {"storage": {"className": "fast"}}}, "storage cannot be changed"),
    ],
)
def test_what_may_not_change_once_set(bench: Bench, before: Spec, change: Spec, message: str) -> None:
    bench.create("autellixclusters", manifest(before))
    with pytest.raises(ApiError, match=message):
        bench.patch("autellixclusters", "demo", {"spec": {"processTable": {"etcd": change}}})


def test_etcd_may_move_elsewhere_and_back(bench: Bench) -> None:
    bench.create("autellixclusters", manifest({}))
    away = {"managed": None, "endpoints": ["a:1"]}
    back = {"managed": {"replicas": 3}, "endpoints": None}
    for change in (away, back):
        bench.patch("autellixclusters", "demo", {"spec": {"processTable": {"etcd": change}}})


def test_unknown_fields_are_told_to_who_asks(bench: Bench) -> None:
    path = bench.path("autellixclusters") + "?fieldValidation=Strict"
    with pytest.raises(ApiError, match=r"unknown field .*spec\.engine\.replica"):
        bench.admin.request("POST", path, manifest(engine(replica=2)))


def test_defaults_of_the_server_are_those_of_the_operator(bench: Bench) -> None:
    stored = bench.create("autellixclusters", manifest({}))
    assert parse_spec(stored) == parse_spec(manifest({}))
    optional = {"template", "annotations"}
    assert optional.isdisjoint(stored["spec"]["engine"])


def test_kubectl_has_the_short_name_the_columns_and_the_scale(bench: Bench) -> None:
    bench.create("autellixclusters", manifest({"scheduling": {"policy": "Atlas"}}))
    resources = bench.admin.request("GET", "/apis/autellix.dev/v1alpha1")["resources"]
    found = {each["name"]: each for each in resources}
    assert found.keys() == {"autellixclusters", "autellixclusters/status", "autellixclusters/scale"}
    assert found["autellixclusters"]["shortNames"] == ["axc"]
    assert found["autellixclusters"]["categories"] == ["autellix"]
    scale = bench.admin.request("GET", bench.path("autellixclusters", "demo", "scale"))
    assert scale["spec"]["replicas"] == 1


def test_spec_writes_leave_status_alone_and_the_reverse(bench: Bench) -> None:
    bench.create("autellixclusters", manifest({}) | {"status": {"endpoint": "http://forged"}})
    live = bench.patch("autellixclusters", "demo", {"status": {"endpoint": "http://forged"}})
    assert "status" not in live
    change = {"spec": {"engine": {"replicas": 9}}, "status": {"endpoint": "http://true"}}
    live = bench.patch("autellixclusters", "demo", change, "status")
    assert live["status"]["endpoint"] == "http://true"
    assert live["spec"]["engine"]["replicas"] == 1
