"""The engines: a Deployment, the headless Service by which controllers find them, their ServiceAccount."""

import json
from typing import Any, Final

from autellix_operator.api.engine import Variable
from autellix_operator.api.names import (
    ENGINE_REVISION_LABEL,
    ENVIRONMENT_DIGEST_ANNOTATION,
    Cluster,
    Component,
)
from autellix_operator.api.spec import Spec
from autellix_operator.desired import keys, pods
from autellix_operator.desired.digests import Digests
from autellix_operator.desired.sizing import requested_memory, shared_memory
from autellix_operator.desired.template import merge_pod_template

PORT: Final = 8000
_CACHE: Final = "/cache"
_PROBE_PERIOD_SECONDS: Final = 5
#: A started engine counts as available only after so long: controllers find and probe it before an old one leaves.
_SETTLE_SECONDS: Final = 5
#: After the drain: vLLM ends what is left and frees the devices.
_STOP_SECONDS: Final = 30


def engine_deployment(cluster: Cluster, spec: Spec, image: str, digests: Digests) -> dict[str, Any]:
    """The Deployment. Raises InvalidSpec."""
    engine = spec.engine
    selector = cluster.selector(Component.ENGINE)
    template = {
        "metadata": {
            "labels": cluster.labels(Component.ENGINE),
            "annotations": {
                **({ENVIRONMENT_DIGEST_ANNOTATION: digests.environment} if digests.environment else {}),
                "kubectl.kubernetes.io/default-container": "engine",
            },
        },
        "spec": {
            **pods.all_pods(spec),
            "serviceAccountName": engine.service_account_name or cluster.child(Component.ENGINE),
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": engine.drain_seconds + _STOP_SECONDS,
            "topologySpreadConstraints": pods.spread(selector),
            "containers": [_container(spec, image)],
            "volumes": [
                {"name": "scratch", "emptyDir": {}},
                {"name": "tmp", "emptyDir": {}},
                # Workers of one engine exchange tensors through shared memory; the container runtime gives 64 MiB.
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": shared_memory(engine)}},
                keys.volume(cluster),
                *_cache_volumes(spec),
            ],
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": cluster.metadata(Component.ENGINE, cluster.child(Component.ENGINE)),
        "spec": {
            "replicas": engine.replicas,
            "selector": {"matchLabels": selector},
            "minReadySeconds": _SETTLE_SECONDS,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": engine.update.max_surge, "maxUnavailable": engine.update.max_unavailable},
            },
            # A model may take longer to load than the ten minutes after which Kubernetes calls a Deployment stuck.
            "progressDeadlineSeconds": engine.startup_timeout_seconds + 600,
            "template": merge_pod_template(template, engine.template, container="engine", field="spec.engine.template"),
        },
    }


def engine_service(cluster: Cluster, revision: str | None) -> dict[str, Any]:
    """The headless Service: its EndpointSlices list the engines. Those not ready are listed as such.

    ``revision`` is Kubernetes' hash of the newest pod template of engines, None if that is not known yet.
    """
    metadata = cluster.metadata(Component.ENGINE, cluster.child(Component.ENGINE))
    if revision is not None:
        metadata["labels"][ENGINE_REVISION_LABEL] = revision
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "clusterIP": "None",
            "selector": cluster.selector(Component.ENGINE),
            "ports": [{"name": "http", "port": PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    }


def engine_arguments(spec: Spec) -> list[str]:
    """Arguments of the engine's program."""
    model, engine = spec.model, spec.engine
    arguments = ["serve", "--model", model.name, "--served-model-name", model.public_name]
    arguments += ["--host", "0.0.0.0", "--port", str(PORT), "--scheduling", scheduling_json(spec)]
    if model.revision is not None:
        arguments += ["--revision", model.revision]
    if engine.max_model_length is not None:
        arguments += ["--max-model-len", str(engine.max_model_length)]
    if engine.max_sequences is not None:
        arguments += ["--max-num-seqs", str(engine.max_sequences)]
    if engine.devices > 1:
        arguments += ["--tensor-parallel-size", str(engine.devices)]
    if engine.gpu_memory_utilization_percent is not None:
        arguments += ["--gpu-memory-utilization", f"0.{engine.gpu_memory_utilization_percent:02d}"]
    if engine.swap is not None:
        swap = {"size": engine.swap.size, "prefetch_seconds": engine.swap.prefetch_seconds}
        arguments += ["--swap", json.dumps(swap, separators=(",", ":"))]
    return [*arguments, *engine.extra_args]


def scheduling_json(spec: Spec) -> str:
    """The scheduler's settings as the engine takes them."""
    scheduling = spec.scheduling
    settings: dict[str, Any] = {
        "policy": scheduling.policy.lower(),
        "starvation_ratio": scheduling.starvation_ratio_percent / 100,
        "starvation_floor_ms": scheduling.starvation_floor_milliseconds,
        "steps_per_decision": scheduling.steps_per_decision,
        "spare_calls": scheduling.spare_calls,
        "max_preemptions_per_step": scheduling.max_preemptions_per_step,
        # An engine that forgot a program before the controllers do would take it for a new one.
        "program_idle_seconds": scheduling.program_idle_seconds or spec.controller.session_timeout_seconds,
        "max_programs": scheduling.max_programs,
    }
    given = {
        "queue_bounds_ms": scheduling.queue_bounds_milliseconds,
        "quanta_ms": scheduling.quanta_milliseconds,
        "min_run_ms": scheduling.minimum_run_milliseconds,
    }
    settings |= {name: value for name, value in given.items() if value is not None}
    return json.dumps(settings, separators=(",", ":"))


def _container(spec: Spec, image: str) -> dict[str, Any]:
    engine = spec.engine
    drain = ["python3", "-m", "autellix_engine", "drain", "--deadline-seconds", str(engine.drain_seconds)]
    container: dict[str, Any] = {
        "name": "engine",
        "image": image,
        "imagePullPolicy": engine.image_pull_policy,
        "args": engine_arguments(spec),
        "env": _environment(spec),
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "startupProbe": pods.http_probe(
            "/health",
            "http",
            period=_PROBE_PERIOD_SECONDS,
            failures=-(-engine.startup_timeout_seconds // _PROBE_PERIOD_SECONDS),
        ),
        # Loaded engines answer late: leave them in until they have been silent for a while.
        "readinessProbe": pods.http_probe("/health", "http", period=_PROBE_PERIOD_SECONDS, failures=3, timeout=5),
        "lifecycle": {"preStop": {"exec": {"command": drain}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": pods.CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": "scratch", "mountPath": "/scratch"},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "shm", "mountPath": "/dev/shm"},
            keys.MOUNT,
            *([{"name": "cache", "mountPath": _CACHE}] if spec.model.cache else []),
        ],
    }
    limits = {"memory": engine.memory} if engine.memory else {}
    if engine.gpu:
        limits[engine.gpu.resource_name] = str(engine.gpu.count)
    container["resources"] = {"requests": pods.requests("500m", requested_memory(spec))}
    if limits:
        container["resources"]["limits"] = limits
    return container


def _cache_volumes(spec: Spec) -> list[dict[str, Any]]:
    cache = spec.model.cache
    if cache is None:
        return []
    if cache.claim_name is not None:
        return [{"name": "cache", "persistentVolumeClaim": {"claimName": cache.claim_name}}]
    return [{"name": "cache", "emptyDir": {"sizeLimit": cache.ephemeral_size}}]


def _environment(spec: Spec) -> list[dict[str, Any]]:
    token = spec.model.token_secret_ref
    return [
        pods.literal("AUTELLIX_ENGINE_KEY_FILE", keys.PATH),
        pods.pod_name("AUTELLIX_ENGINE_NAME"),
        pods.literal("AUTELLIX_DRAIN_SECONDS", str(spec.engine.drain_seconds)),
        pods.literal("HOME", "/scratch"),
        pods.literal("TMPDIR", "/tmp"),
        pods.literal("HF_HOME", f"{_CACHE if spec.model.cache else '/scratch'}/huggingface"),
        *([pods.from_secret("HF_TOKEN", token.name, token.key)] if token else []),
        *(_variable(each) for each in spec.engine.env),
    ]


def _variable(variable: Variable) -> dict[str, Any]:
    source = variable.value_from
    if source is None:
        return pods.literal(variable.name, variable.value or "")
    if source.secret_key_ref is not None:
        return pods.from_secret(variable.name, source.secret_key_ref.name, source.secret_key_ref.key)
    assert source.config_map_key_ref is not None
    return pods.from_config_map(variable.name, source.config_map_key_ref.name, source.config_map_key_ref.key)
