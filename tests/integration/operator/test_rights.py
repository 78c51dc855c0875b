"""The operator has the rights it needs and no others: every right of the chart is held against what was asked for."""

from support.operator_bench import Bench, Object, eventually
from support.pods import serving_pods

#: An address of this machine on which nothing else listens: pods are said to be there.
ADDRESS = "127.77.0.1"

#: Rights that are there for another reason than to be used.
PASSED_ON = {("discovery.k8s.io", "endpointslices", verb) for verb in ("get", "list", "watch")}
#: Asked for by the API server where an object blocks the end of its owner.
CHECKED_BY_ADMISSION = {("autellix.dev", "autellixclusters/finalizers", "update")}


def granted(bench: Bench) -> set[tuple[str, str, str]]:
    """Group, resource and verb of every right of the chart."""
    roles = [each for each in bench.rights() if each["kind"] == "Role"]
    return {
        (group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def taken(event: Object) -> set[tuple[str, str, str]]:
    """Group, resource and verb of the rights that a request took. An apply that makes an object takes two."""
    target = event["objectRef"]
    resource = "/".join(part for part in (target["resource"], target.get("subresource")) if part)
    verbs = {event["verb"]}
    if event["verb"] == "patch" and event["responseStatus"]["code"] == 201:
        verbs.add("create")
    return {(target.get("apiGroup", ""), resource, verb) for verb in verbs}


def test_every_right_of_the_chart_is_used_and_none_is_missing(bench: Bench) -> None:
    bench.pod_address = ADDRESS
    bench.install_monitoring_api()
    bench.create("configmaps", {"metadata": {"name": "common"}, "data": {"level": "low"}})
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    bench.create("persistentvolumeclaims", {"metadata": {"name": "models"}, "spec": claim})

    def answer(path: str) -> tuple[int, str]:
        pods = [pod["metadata"]["name"] for pod in bench.find("pods", "demo")]
        lines = [f'autellix_controller_engine_programs{{engine="{name}"}} 3\n' for name in pods]
        return 200, "autellix_controller_programs 3\nautellix_engine_worst_wait_ratio 0.5\n" + "".join(lines)

    with serving_pods(ADDRESS, answer), bench.operator("--figures-seconds=1") as operator:
        bench.make_cluster(
            model={"name": "m", "cache": {"claimName": "models"}},
            engine={"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "common", "key": "level"}}}]},
            networkPolicy={"mode": "Enabled"},
            monitoring={"monitors": "Enabled", "alerts": "Enabled"},
        )
        bench.make_ready()
        eventually(
            lambda: bench.get("autellixclusters", "demo")["status"].get("programs", {}).get("live") == 3,
            "programs are told",
        )
        # Accounts of others, an etcd elsewhere and nothing around: everything that can go goes.
        less = {
            "engine": {"serviceAccountName": "default"},
            "processTable": {"etcd": {"managed": None, "endpoints": ["a:1"]}},
            "networkPolicy": None,
            "monitoring": None,
        }
        bench.patch("autellixclusters", "demo", {"spec": less})
        eventually(
            lambda: bench.gone("statefulsets", "demo-etcd") and bench.gone("podmonitors", "demo-etcd"), "they go"
        )
        bench.make_ready()
        operator.stop()
    (account,) = [each["metadata"]["name"] for each in bench.rights() if each["kind"] == "ServiceAccount"]
    events = [each for each in bench.admin.audited(bench.namespace, account) if "objectRef" in each]
    refused = [taken(each) for each in events if each["responseStatus"]["code"] == 403]
    used = set[tuple[str, str, str]]().union(*map(taken, events))
    unused = granted(bench) - used - PASSED_ON - CHECKED_BY_ADMISSION
    assert (refused, unused) == ([], set())
