"""The operator as a process on a real API server, under the rights of the chart."""

import base64
import subprocess
import sys

import pytest

from support.apiserver import ApiError
from support.operator_bench import Bench, eventually

CHILDREN = {
    ("secrets", "demo-engine-key"),
    ("serviceaccounts", "demo-etcd"),
    ("services", "demo-etcd"),
    ("statefulsets", "demo-etcd"),
    ("serviceaccounts", "demo-engine"),
    ("services", "demo-engine"),
    ("deployments", "demo-engine"),
    ("serviceaccounts", "demo-controller"),
    ("roles", "demo-controller"),
    ("rolebindings", "demo-controller"),
    ("services", "demo"),
    ("deployments", "demo-controller"),
}


def test_a_cluster_becomes_its_children_and_ready(bench: Bench) -> None:
    with bench.operator() as operator:
        resource = bench.make_cluster()
        bench.wait_for("demo", "Ready", "Starting")
        found = bench.children("demo")
        assert found.keys() >= CHILDREN
        for key in CHILDREN:
            metadata = found[key]["metadata"]
            assert metadata["labels"]["app.kubernetes.io/managed-by"] == "autellix-operator"
            assert metadata["labels"]["app.kubernetes.io/instance"] == "demo"
            assert [owner["uid"] for owner in metadata["ownerReferences"]] == [resource["metadata"]["uid"]]
        bench.make_ready()
        live = bench.get("autellixclusters", "demo")
        assert live["status"]["engines"] == "1/1"
        assert live["status"]["endpoint"] == f"http://demo.{bench.namespace}.svc/v1"
        assert {each["type"]: each["status"] for each in live["status"]["conditions"]} == {
            "Ready": "True",
            "EnginesReady": "True",
            "ControllerReady": "True",
            "ProcessTableReady": "True",
            "Progressing": "False",
        }
        assert "finalizers" not in live["metadata"]
        assert "annotations" not in live["metadata"]
        assert [event["reason"] for event in bench.events("demo")] == ["Starting", "Available"]
        assert operator.metric("autellix_operator_reconciles_total") > 0
        assert operator.metric("autellix_operator_api_errors_total") == 0 or "403" not in operator.read("/metrics")
        assert operator.stop() == 0


def test_drift_is_undone_and_what_others_own_is_left(bench: Bench) -> None:
    with bench.operator():
        bench.make_cluster()
        bench.make_ready()
        bench.patch("deployments", "demo-engine", {"spec": {"replicas": 7}})
        bench.patch("services", "demo", {"metadata": {"annotations": {"somebody": "else"}}})
        bench.patch("services", "demo", {"metadata": {"labels": {"app.kubernetes.io/instance": "other"}}})
        bench.patch("services", "demo-etcd", {"metadata": {"labels": {"autellix.dev/cluster": None}}})
        eventually(lambda: bench.get("deployments", "demo-engine")["spec"]["replicas"] == 1, "replicas are 1 again")
        eventually(
            lambda: bench.get("services", "demo")["metadata"]["labels"]["app.kubernetes.io/instance"] == "demo",
            "the label is back",
        )
        assert bench.get("services", "demo")["metadata"]["annotations"] == {"somebody": "else"}


def test_a_deleted_child_comes_back(bench: Bench) -> None:
    with bench.operator():
        bench.make_cluster()
        bench.make_ready()
        before = bench.children("demo")
        for plural, name in sorted(CHILDREN):
            bench.delete(plural, name)
        eventually(
            lambda: (
                all(
                    after["metadata"]["uid"] != before[key]["metadata"]["uid"]
                    for key, after in bench.children("demo").items()
                    if key in CHILDREN
                )
                and bench.children("demo").keys() >= CHILDREN
            ),
            "all children are back",
        )
        bench.make_ready()


def test_a_new_engine_key_starts_engines_and_controllers_anew(bench: Bench) -> None:
    with bench.operator():
        bench.make_cluster()
        bench.make_ready()
        key = bench.get("secrets", "demo-engine-key")["data"]["api-key"]
        assert len(base64.b64decode(key)) >= 32
        before = {
            name: bench.get("deployments", name)["spec"]["template"] for name in ("demo-engine", "demo-controller")
        }
        etcd = bench.get("statefulsets", "demo-etcd")["metadata"]["resourceVersion"]
        bench.delete("secrets", "demo-engine-key")
        eventually(
            lambda: all(
                bench.get("deployments", name)["spec"]["template"] != template for name, template in before.items()
            ),
            "engines and controllers roll",
        )
        assert bench.get("secrets", "demo-engine-key")["data"]["api-key"] != key
        assert bench.get("statefulsets", "demo-etcd")["metadata"]["resourceVersion"] == etcd


def test_a_changed_spec_rolls_and_status_speaks_of_the_new_generation(bench: Bench) -> None:
    with bench.operator():
        bench.make_cluster()
        bench.make_ready()
        pods = {pod["metadata"]["name"] for pod in bench.find("pods", "demo")}
        bench.patch("autellixclusters", "demo", {"spec": {"scheduling": {"policy": "Fcfs"}}})
        bench.wait_for("demo", "EnginesReady", "Updating")
        assert bench.condition("demo", "Ready")["status"] == "False"
        assert bench.condition("demo", "Progressing")["status"] == "True"
        bench.make_ready()
        arguments = bench.get("deployments", "demo-engine")["spec"]["template"]["spec"]["containers"][0]["args"]
        assert '"policy":"fcfs"' in " ".join(arguments)
        kept = pods & {pod["metadata"]["name"] for pod in bench.find("pods", "demo")}
        assert all("engine" not in name for name in kept)
        assert any("controller" in name for name in kept)


def test_scale_subresource_sets_engines(bench: Bench) -> None:
    with bench.operator():
        bench.make_cluster()
        bench.make_ready()
        bench.patch("autellixclusters", "demo", {"spec": {"replicas": 3}}, "scale")
        eventually(lambda: bench.get("deployments", "demo-engine")["spec"]["replicas"] == 3, "3 engines are wanted")
        bench.make_ready()
        scale = bench.admin.request("GET", bench.path("autellixclusters", "demo", "scale"))
        assert scale["status"]["replicas"] == 3
        assert "app.kubernetes.io/component=engine" in scale["status"]["selector"]
        bench.patch("autellixclusters", "demo", {"spec": {"replicas": 0}}, "scale")
        bench.wait_for("demo", "Ready", "Updating")
        bench.with_kubelet("demo", lambda: bench.condition("demo", "Ready")["reason"] == "ScaledToZero", "no engine")


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


def test_a_cluster_made_again_at_once_waits_for_its_predecessors_children_to_go(bench: Bench) -> None:
    with bench.operator():
        bench.make_cluster()
        bench.make_ready()
        bench.delete("autellixclusters", "demo")
        second = bench.make_cluster()

        def all_are_of_the_second() -> bool:
            found = bench.children("demo")
            owners = {found[key]["metadata"]["ownerReferences"][0]["uid"] for key in CHILDREN & found.keys()}
            return found.keys() >= CHILDREN and owners == {second["metadata"]["uid"]}

        eventually(lambda: bench.children("demo").keys() >= CHILDREN and all_are_of_the_second(), "second cluster")
        bench.make_ready()


def test_what_got_past_admission_is_a_condition_and_changes_nothing(bench: Bench) -> None:
    with bench.operator():
        bench.make_cluster()
        bench.make_ready()
        before = bench.get("deployments", "demo-engine")["metadata"]["resourceVersion"]
        template = {"spec": {"containers": [{"name": "engine", "args": ["serve"]}]}}
        bench.patch("autellixclusters", "demo", {"spec": {"engine": {"template": template}}})
        condition = bench.wait_for("demo", "Ready", "InvalidSpec")
        assert condition["message"].startswith("spec.engine.template.spec.containers[engine].args: ")
        assert bench.get("deployments", "demo-engine")["metadata"]["resourceVersion"] == before
        assert bench.events("demo")[-1]["type"] == "Warning"
        bench.patch("autellixclusters", "demo", {"spec": {"engine": {"template": None}}})
        bench.wait_for("demo", "Ready", "Available")


def test_an_object_the_server_refuses_is_a_condition_and_the_other_parts_go_on(bench: Bench) -> None:
    template = {"spec": {"containers": [{"name": "engine", "imagePullPolicy": "Sometimes"}]}}
    with bench.operator():
        bench.make_cluster(engine={"template": template})
        condition = bench.wait_for("demo", "EnginesReady", "ApplyRefused")
        assert "imagePullPolicy" in condition["message"]
        bench.get("deployments", "demo-controller")
        template["spec"]["containers"][0] = {"name": "engine", "imagePolicy": "Never"}
        bench.patch("autellixclusters", "demo", {"spec": {"engine": {"template": None}}})
        bench.patch("autellixclusters", "demo", {"spec": {"engine": {"template": template}}})
        eventually(lambda: "imagePolicy" in bench.condition("demo", "EnginesReady")["message"], "unknown field is told")


def test_pods_that_are_refused_are_told(bench: Bench) -> None:
    template = {"spec": {"securityContext": {"runAsNonRoot": False, "runAsUser": 0}}}
    with bench.operator():
        bench.make_cluster(engine={"template": template})
        condition = bench.wait_for("demo", "EnginesReady", "PodsRefused")
        assert "restricted" in condition["message"]


def test_a_name_that_is_taken_is_a_condition_and_the_object_stays_untouched(bench: Bench) -> None:
    service = {"metadata": {"name": "demo"}, "spec": {"ports": [{"port": 5432}]}}
    theirs = bench.create("services", service)
    with bench.operator():
        bench.make_cluster()
        condition = bench.wait_for("demo", "ControllerReady", "NameConflict")
        assert "Service demo" in condition["message"]
        assert bench.get("services", "demo")["metadata"]["resourceVersion"] == theirs["metadata"]["resourceVersion"]


def test_a_missing_secret_is_named_and_its_arrival_noticed(bench: Bench) -> None:
    with bench.operator():
        bench.make_cluster(controller={"apiKeysSecretRef": {"name": "keys"}})
        condition = bench.wait_for("demo", "ControllerReady", "SecretMissing")
        assert condition["message"] == "spec.controller.apiKeysSecretRef: there is no Secret keys"
        bench.create("secrets", {"metadata": {"name": "keys"}, "stringData": {"other": "x"}})
        eventually(lambda: "has no key keys" in bench.condition("demo", "ControllerReady")["message"], "no key", 10)
        bench.patch("secrets", "keys", {"stringData": {"keys": "someone:sk-1"}})
        bench.wait_for("demo", "ControllerReady", "Starting", 10)
        bench.make_ready()


def test_etcd_children_go_when_the_spec_names_an_etcd_elsewhere(bench: Bench) -> None:
    with bench.operator():
        bench.make_cluster()
        bench.make_ready()
        external = {"processTable": {"etcd": {"managed": None, "endpoints": ["etcd.example:2379"]}}}
        bench.patch("autellixclusters", "demo", {"spec": external})
        kinds = ("statefulsets", "services", "serviceaccounts")
        eventually(lambda: all(bench.gone(plural, "demo-etcd") for plural in kinds), "etcd is gone")
        bench.with_kubelet("demo", lambda: not bench.find("persistentvolumeclaims", "demo"), "claims are gone")
        assert bench.wait_for("demo", "ProcessTableReady", "External")["status"] == "True"
        variables = bench.get("deployments", "demo-controller")["spec"]["template"]["spec"]["containers"][0]["env"]
        assert {"name": "AUTELLIX_CONTROLLER_TABLE", "value": "etcd://etcd.example:2379"} in variables


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
