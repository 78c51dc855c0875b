"""The controllers: a Deployment and the Service that clients use."""

from typing import Any, Final

from autellix_operator.api.controller import ApiKeysSecretRef, Controller
from autellix_operator.api.names import TABLE_DIGEST_ANNOTATION, Cluster, Component
from autellix_operator.api.spec import Spec
from autellix_operator.desired import keys, pods, table_access
from autellix_operator.desired.access import controller_account
from autellix_operator.desired.digests import Digests
from autellix_operator.desired.etcd import table_url
from autellix_operator.desired.template import merge_pod_template

PORT: Final = 8080
#: Between a pod's removal from the Service and the end of its listening: routers need a moment to notice.
_LEAVE_SECONDS: Final = 5
#: After that it still accepts what comes, for routers that notice late.
_NOTICE_SECONDS: Final = 3
#: For its last writes to the table.
_END_SECONDS: Final = 10
_KEYS_FOLDER: Final = "/etc/autellix/api-keys"


def controller_deployment(cluster: Cluster, spec: Spec, image: str, digests: Digests) -> dict[str, Any]:
    """The Deployment. Raises InvalidSpec."""
    controller = spec.controller
    selector = cluster.selector(Component.CONTROLLER)
    template = {
        "metadata": {
            "labels": cluster.labels(Component.CONTROLLER),
            "annotations": {
                **({TABLE_DIGEST_ANNOTATION: digests.table_client} if digests.table_client else {}),
                "kubectl.kubernetes.io/default-container": "controller",
            },
        },
        "spec": {
            **pods.all_pods(spec),
            "serviceAccountName": controller_account(cluster, spec),
            # The only pods with a token: controllers find engines by watching EndpointSlices.
            "automountServiceAccountToken": True,
            "terminationGracePeriodSeconds": _LEAVE_SECONDS + _NOTICE_SECONDS + controller.drain_seconds + _END_SECONDS,
            "topologySpreadConstraints": pods.spread(selector),
            "containers": [_container(cluster, spec, image)],
            "volumes": [
                {"name": "tmp", "emptyDir": {}},
                keys.volume(cluster),
                *_api_keys_volumes(controller.api_keys_secret_ref),
                *table_access.volumes(cluster, spec.process_table.etcd),
            ],
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": cluster.metadata(Component.CONTROLLER, cluster.child(Component.CONTROLLER)),
        "spec": {
            "replicas": controller.replicas,
            "selector": {"matchLabels": selector},
            # The endpoint keeps all its capacity while controllers are replaced: they are small.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": merge_pod_template(
                template, controller.template, container="controller", field="spec.controller.template"
            ),
        },
    }


def client_service(cluster: Cluster, spec: Spec) -> dict[str, Any]:
    """The Service that clients use."""
    service = spec.controller.service
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": cluster.metadata(Component.CONTROLLER, cluster.service, service.annotations),
        "spec": {
            "type": service.type,
            "selector": cluster.selector(Component.CONTROLLER),
            "ports": [{"name": "http", "port": service.port, "targetPort": "http", "protocol": "TCP"}],
        },
    }


def endpoint(cluster: Cluster, spec: Spec) -> str:
    """URL of the endpoint inside Kubernetes, for clients of the OpenAI API."""
    port = spec.controller.service.port
    return f"http://{cluster.service}.{cluster.namespace}.svc{'' if port == 80 else f':{port}'}/v1"


def _container(cluster: Cluster, spec: Spec, image: str) -> dict[str, Any]:
    api_keys = spec.controller.api_keys_secret_ref
    return {
        "name": "controller",
        "image": image,
        "imagePullPolicy": spec.controller.image_pull_policy,
        "env": _environment(cluster, spec),
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        # A start takes seconds, on a crowded node many times that.
        "startupProbe": pods.http_probe("/healthz", "http", period=1, failures=300),
        "livenessProbe": pods.http_probe("/healthz", "http", period=10, failures=6, timeout=5),
        "readinessProbe": pods.http_probe("/readyz", "http", period=2, failures=3),
        "resources": {"requests": pods.requests("150m", "128Mi")},
        "lifecycle": {"preStop": {"sleep": {"seconds": _LEAVE_SECONDS}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": pods.CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            keys.MOUNT,
            *([{"name": "api-keys", "mountPath": _KEYS_FOLDER, "readOnly": True}] if api_keys else []),
            *table_access.mounts(cluster, spec.process_table.etcd),
        ],
    }


def _api_keys_volumes(reference: ApiKeysSecretRef | None) -> list[dict[str, Any]]:
    if reference is None:
        return []
    return [{"name": "api-keys", "secret": pods.secret_source(reference.name, {reference.key: "keys"})}]


def _environment(cluster: Cluster, spec: Spec) -> list[dict[str, Any]]:
    prefix = "AUTELLIX_CONTROLLER_"
    access = (
        pods.literal(f"{prefix}API_KEYS_FILE", f"{_KEYS_FOLDER}/keys")
        if spec.controller.api_keys_secret_ref
        else pods.literal(f"{prefix}ALLOW_ANONYMOUS", "true")
    )
    return [
        pods.literal(f"{prefix}LISTEN", f"0.0.0.0:{PORT}"),
        pods.literal(f"{prefix}TABLE", table_url(cluster, spec.process_table.etcd)),
        *table_access.variables(cluster, spec.process_table.etcd),
        pods.literal(f"{prefix}TABLE_PREFIX", f"/autellix/{cluster.namespace}/{cluster.name}"),
        pods.literal(f"{prefix}ENGINES", f"kubernetes://{cluster.namespace}/{cluster.child(Component.ENGINE)}"),
        pods.pod_name(f"{prefix}REPLICA"),
        pods.literal(f"{prefix}ROUTING_POLICY", spec.routing.policy.name.lower()),
        pods.literal(f"{prefix}LOCALITY_THRESHOLD_TOKENS", str(spec.routing.locality_threshold_tokens)),
        pods.literal(f"{prefix}SPILL_RATIO", f"{spec.routing.spill_ratio_percent / 100:g}"),
        pods.literal(f"{prefix}SPILL_CALLS", str(spec.routing.spill_calls)),
        pods.literal(f"{prefix}SPILL_TOKENS", str(spec.routing.spill_tokens)),
        *_optional(prefix, spec),
        pods.literal(f"{prefix}DRAIN_NOTICE_SECONDS", str(_NOTICE_SECONDS)),
        pods.literal(f"{prefix}DRAIN_SECONDS", str(spec.controller.drain_seconds)),
        *_limits(prefix, spec.controller),
        pods.literal(f"{prefix}SESSION_TIMEOUT_SECONDS", str(spec.controller.session_timeout_seconds)),
        access,
        pods.literal(f"{prefix}ENGINE_KEY_FILE", keys.PATH),
    ]


def _optional(prefix: str, spec: Spec) -> list[dict[str, Any]]:
    values = {
        "SESSION_HEADERS": ",".join(spec.controller.session_headers),
        "ISOLATE_PREFIX_CACHE": "true" if spec.controller.prefix_cache_isolation == "Enabled" else "",
        "TRACE_ENDPOINT": spec.monitoring.trace_endpoint or "",
    }
    return [pods.literal(prefix + name, value) for name, value in values.items() if value]


def _limits(prefix: str, controller: Controller) -> list[dict[str, Any]]:
    limits, deadlines = controller.limits, controller.deadlines
    values = {
        "MAX_CALLS": limits.max_calls,
        "ENGINE_CALLS": limits.engine_calls,
        "QUEUE_CALLS": limits.queue_calls,
        "QUEUE_SECONDS": deadlines.queue_seconds,
        "HOLD_SECONDS": deadlines.hold_seconds,
        "BODIES_LIMIT_BYTES": limits.requests_mebibytes << 20,
        "BODY_LIMIT_BYTES": limits.request_mebibytes << 20,
        "ANSWER_LIMIT_BYTES": limits.response_mebibytes << 20,
        "BODY_DEADLINE_SECONDS": deadlines.body_seconds,
        "CONNECT_DEADLINE_SECONDS": deadlines.connect_seconds,
        "FIRST_BYTE_DEADLINE_SECONDS": deadlines.first_byte_seconds,
        "IDLE_DEADLINE_SECONDS": deadlines.idle_seconds,
        "TOTAL_DEADLINE_SECONDS": deadlines.total_seconds,
    }
    return [pods.literal(prefix + name, str(value)) for name, value in values.items()]
