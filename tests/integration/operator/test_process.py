"""The operator as a process: what it may do, what it serves, its start, its end and its restart."""

import subprocess
import sys

import pytest

from support.apiserver import ApiError
from support.operator_bench import Bench, eventually


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


def test_a_deleted_cluster_leaves_nothing_even_without_the_operator(bench: Bench) -> None:
    with bench.operator():
        bench.make_cluster("one")
        bench.make_cluster("two")
        bench.make_ready("one")
        bench.make_ready("two")
        assert bench.find("persistentvolumeclaims", "one")
        bench.delete("autellixclusters", "one")
        bench.with_kubelet("one", lambda: not bench.children("one"), "nothing is left of one")
    bench.delete("autellixclusters", "two")
    bench.with_kubelet("two", lambda: not bench.children("two"), "nothing is left of two")


def test_a_restarted_operator_catches_up(bench: Bench) -> None:
    with bench.operator():
        bench.make_cluster()
        bench.make_ready()
    bench.patch("autellixclusters", "demo", {"spec": {"engine": {"replicas": 2}}})
    bench.delete("services", "demo")
    bench.make_cluster("later")
    with bench.operator():
        eventually(lambda: bench.get("deployments", "demo-engine")["spec"]["replicas"] == 2, "2 engines are wanted")
        eventually(lambda: bench.get("services", "demo"), "the Service is back")
        eventually(lambda: bench.get("deployments", "later-engine"), "the other cluster is made")


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


def test_an_idle_operator_writes_nothing_however_often_it_looks(bench: Bench) -> None:
    with bench.operator("--resync-seconds=10") as operator:
        bench.make_cluster()
        bench.make_ready()

        def reconciles() -> float:
            return operator.metric("autellix_operator_reconciles_total")

        def versions() -> dict[tuple[str, str], str]:
            found = bench.children("demo") | {("autellixclusters", "demo"): bench.get("autellixclusters", "demo")}
            return {key: each["metadata"]["resourceVersion"] for key, each in found.items()}

        # What came of the last change: then only resyncs are left.
        before, known = reconciles(), versions()
        eventually(lambda: reconciles() >= before + 3, "the operator looks again", 60)
        assert versions() == known
        assert len(bench.events("demo")) == 2


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
