"""The operator as a process: what it may do, what it serves, its start, its end and its restart."""

import base64
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.apiserver import ApiError
from support.operator_bench import Bench, Operator, eventually
from support.resources import intent

#: `make soak-operator` sets more.
IDLE_SECONDS = int(os.environ.get("AUTELLIX_IDLE_SECONDS", "120"))

#: 150 MB.
MOST_MEMORY_MIB = 143


def test_it_needs_no_more_rights_than_the_chart_gives_and_ends_when_told(bench: Bench) -> None:
    with bench.operator() as operator:
        bench.make_cluster()
        bench.make_ready()
        bench.delete("autellixclusters", "demo")
        bench.with_kubelet("demo", lambda: not bench.children("demo"), "nothing is left")
        assert operator.metric("autellix_operator_reconciles_total") > 0
        # 404: whether an object is there before it is made. Nothing is forbidden, nothing clashes.
        lines = operator.read("/metrics").splitlines()
        errors = [line for line in lines if line.startswith("autellix_operator_api_errors_total")]
        assert all('status="404"' in line for line in errors), errors
        assert operator.read("/healthz") == operator.read("/readyz") == '{"status": "ok"}'
        assert operator.stop() == 0
        log = operator.log.read_text()
        assert "Traceback" not in log
        assert "orbidden" not in log


def resident_mib(operator: Operator) -> float:
    pages = int(Path(f"/proc/{operator.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def test_a_deleted_cluster_leaves_nothing_even_without_the_operator(bench: Bench) -> None:
    kept = {"etcd": {"managed": {"whenDeleted": "Retain"}}}
    with bench.operator():
        bench.make_cluster("one")
        bench.make_cluster("two", processTable=kept)
        bench.make_ready("one")
        bench.make_ready("two")
        assert bench.find("persistentvolumeclaims", "one")
        bench.delete("autellixclusters", "one")
        bench.with_kubelet("one", lambda: not bench.children("one"), "nothing is left of one")
    bench.delete("autellixclusters", "two")
    claim = {("persistentvolumeclaims", "data-two-etcd-0")}
    bench.with_kubelet("two", lambda: bench.children("two").keys() == claim, "only the data is left of two")


def test_a_cluster_that_is_deleted_in_the_foreground_goes_without_the_operator(bench: Bench) -> None:
    with bench.operator():
        bench.make_cluster()
        bench.make_ready()
    bench.admin.request("DELETE", bench.path("autellixclusters", "demo"), {"propagationPolicy": "Foreground"})
    bench.with_kubelet("demo", lambda: bench.gone("autellixclusters", "demo"), "the cluster is gone")


def test_a_restarted_operator_catches_up(bench: Bench) -> None:
    with bench.operator():
        bench.make_cluster()
        bench.make_ready()
    bench.patch("autellixclusters", "demo", {"spec": {"engine": {"replicas": 2}}})
    bench.delete("services", "demo")
    bench.delete("secrets", "demo-engine-key")
    (old,) = accepted_keys(bench)
    bench.make_cluster("later")
    with bench.operator():
        eventually(lambda: bench.get("deployments", "demo-engine")["spec"]["replicas"] == 2, "2 engines are wanted")
        eventually(lambda: bench.get("services", "demo"), "the Service is back")
        eventually(lambda: bench.get("deployments", "later-engine"), "the other cluster is made")
        assert accepted_keys(bench)[1:] == [old], "a key that is exchanged stays accepted"


def accepted_keys(bench: Bench) -> list[str]:
    data = bench.get("secrets", "demo-engine-accepted-keys")["data"]
    return base64.b64decode(data["keys"]).decode().split()


def test_the_operator_serves_all_namespaces_or_only_its_own(bench: Bench) -> None:
    other = f"{bench.namespace}-other"
    bench.admin.request("POST", "/api/v1/namespaces", {"metadata": {"name": other}})
    there = Bench(bench.admin, other, bench.folder)
    with bench.operator():
        there.make_cluster("foreign")
        bench.make_cluster()
        bench.wait_for("demo", "Ready", "Starting")
        assert not there.get("autellixclusters", "foreign").get("status")
    with bench.operator(namespaced=False):
        there.wait_for("foreign", "Ready", "Starting")


def test_an_idle_operator_writes_nothing_and_does_not_grow_however_often_it_looks(bench: Bench) -> None:
    with bench.operator("--resync-seconds=10", "--figures-seconds=5") as operator:
        bench.make_cluster()
        bench.make_ready()

        def reconciles() -> float:
            return operator.metric("autellix_operator_reconciles_total")

        def versions() -> dict[tuple[str, str], str]:
            found = bench.children("demo") | {("autellixclusters", "demo"): bench.get("autellixclusters", "demo")}
            return {key: each["metadata"]["resourceVersion"] for key, each in found.items()}

        def stays_as_it_is() -> bool:
            seen, looks = versions(), reconciles()
            eventually(lambda: reconciles() > looks, "the operator looks again")
            return versions() == seen

        # What came of the last change, also from Kubernetes' own controllers: then only resyncs are left.
        eventually(stays_as_it_is, "the cluster is at rest")
        before, known, memory = reconciles(), versions(), resident_mib(operator)
        time.sleep(IDLE_SECONDS)
        assert reconciles() >= before + IDLE_SECONDS / 10
        assert versions() == known
        assert resident_mib(operator) < min(memory + 8, MOST_MEMORY_MIB)
        assert len(bench.events("demo")) == 2


def test_two_operators_that_were_started_by_mistake_do_no_harm(bench: Bench) -> None:
    with bench.operator("--resync-seconds=10", "--engine-image=engine:one") as first:
        bench.make_cluster()
        bench.make_ready()
        before = bench.get("deployments", "demo-engine")["metadata"]["generation"]
        with bench.operator("--resync-seconds=10", "--engine-image=engine:two") as second:
            standby = second.metric("autellix_operator_reconciles_total")
            eventually(lambda: second.metric("autellix_operator_reconciles_total") > standby + 1, "it looks")
            assert (first.metric("autellix_operator_leases"), second.metric("autellix_operator_leases")) == (1, 0)
            assert bench.get("deployments", "demo-engine")["metadata"]["generation"] == before
            first.stop()
            eventually(lambda: second.metric("autellix_operator_leases") == 1, "the second takes over")
            eventually(lambda: engine_image(bench) == "engine:two", "the second works")


def test_a_watched_namespace_that_is_gone_keeps_no_other_from_being_served(bench: Bench) -> None:
    with bench.operator(f"--watch-namespaces=gone-{bench.namespace},{bench.namespace}") as operator:
        bench.make_cluster()
        bench.make_ready()
        assert f"not serving namespace gone-{bench.namespace} before the next start" in operator.log.read_text()


def engine_image(bench: Bench) -> str:
    template = bench.get("deployments", "demo-engine")["spec"]["template"]
    image: str = template["spec"]["containers"][0]["image"]
    return image


def test_the_difference_of_intended_and_live_is_shown_and_nothing_is_changed(bench: Bench) -> None:
    with bench.operator():
        bench.make_cluster()
        bench.make_ready()
    assert bench.command("diff", f"{bench.namespace}/demo") == (0, "")
    bench.patch("deployments", "demo-engine", {"spec": {"replicas": 7}})
    bench.delete("services", "demo")
    bench.delete("secrets", "demo-engine-key")
    before = {key: intent(each) for key, each in bench.children("demo").items()}
    status, shown = bench.command("diff", f"{bench.namespace}/demo")
    assert status == 1
    assert "-  replicas: 7\n+  replicas: 1\n" in shown
    assert "+++ intended Service/demo\n" in shown
    assert "+  api-key: (not shown)\n" in shown
    assert "StatefulSet" not in shown
    after = {key: intent(each) for key, each in bench.children("demo").items()}
    assert {key for key in before if key[0] != "replicasets" and before[key] != after.get(key)} <= {
        ("deployments", "demo-engine")
    }
    assert bench.gone("services", "demo")
    paused = {"metadata": {"annotations": {"autellix.dev/paused": "true"}}}
    bench.patch("autellixclusters", "demo", paused | {"spec": {"controller": {"replicas": 5}}})
    status, shown = bench.command("diff", f"{bench.namespace}/demo")
    assert (status, "+  replicas: 5\n" in shown) == (1, True)
    assert "autellix-operator: the cluster is paused" in shown
    template = {"spec": {"containers": [{"name": "engine", "imagePullPolicy": "Sometimes"}]}}
    bench.patch("autellixclusters", "demo", {"spec": {"engine": {"template": template}}})
    status, shown = bench.command("diff", f"{bench.namespace}/demo")
    assert (status, "+  replicas: 5\n" in shown) == (2, True)
    assert "autellix-operator: engine: ApplyRefused: Deployment: " in shown
    template["spec"]["containers"] = [{"name": "engine", "args": "serve"}]
    bench.patch("autellixclusters", "demo", {"spec": {"engine": {"template": template}}})
    status, shown = bench.command("diff", f"{bench.namespace}/demo")
    assert status == 2
    assert shown.startswith(f"autellix-operator: {bench.namespace}/demo: spec.engine.template.")
    status, shown = bench.command("diff", f"{bench.namespace}/other")
    assert (status, shown) == (2, f"autellix-operator: there is no AutellixCluster {bench.namespace}/other\n")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/nodes"),
        ("GET", "/api/v1/namespaces"),
        ("GET", "/api/v1/namespaces/kube-system/secrets"),
        ("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
        ("POST", "/api/v1/namespaces/{namespace}/pods"),
        ("DELETE", "/api/v1/namespaces/{namespace}/pods/any"),
        ("DELETE", "/apis/autellix.dev/v1alpha1/namespaces/{namespace}/autellixclusters/any"),
    ],
)
def test_the_rights_of_the_operator_end_where_its_work_ends(bench: Bench, method: str, path: str) -> None:
    account = bench.install_rights()
    with pytest.raises(ApiError) as refusal:
        account.request(method, path.format(namespace=bench.namespace), {} if method == "POST" else None)
    assert refusal.value.status == 403


@pytest.mark.parametrize("setting", ["--workers=0", "--watch-namespaces=Not_A_Name", "--engine-image="])
def test_a_wrong_setting_stops_the_start_with_one_line_that_names_it(setting: str) -> None:
    command = [sys.executable, "-m", "autellix_operator", "run", setting, "--controller-image=c", "--etcd-image=e"]
    command += [] if "engine" in setting else ["--engine-image=e"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert setting.split("=")[0] in done.stderr
