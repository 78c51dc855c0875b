"""What the operator makes of clusters, on a real API server: one process serves all tests, under the rights of the
chart."""

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from support.apiserver import Client
from support.cluster_fixtures import new_bench
from support.operator_bench import Bench, eventually
from support.resources import intent

CHILDREN = {
    ("secrets", "demo-engine-key"),
    ("secrets", "demo-engine-accepted-keys"),
    ("secrets", "demo-digest-salt"),
    ("secrets", "demo-etcd-ca"),
    ("secrets", "demo-etcd-server"),
    ("secrets", "demo-etcd-client"),
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
    ("poddisruptionbudgets", "demo-etcd"),
    ("poddisruptionbudgets", "demo-engine"),
    ("poddisruptionbudgets", "demo-controller"),
}
CLAIM = "data-demo-etcd-0"


@pytest.fixture(scope="module", autouse=True)
def operator(admin: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with new_bench(admin, tmp_path_factory.mktemp("operator")).operator(namespaced=False):
        yield


def test_a_cluster_becomes_its_children_and_ready(bench: Bench) -> None:
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
        "Degraded": "False",
    }
    assert "finalizers" not in live["metadata"]
    assert "annotations" not in live["metadata"]
    assert [event["reason"] for event in bench.events("demo")] == ["Starting", "Available"]


def test_drift_is_undone_and_what_others_own_is_left(bench: Bench) -> None:
    bench.make_cluster()
    bench.make_ready()
    bench.patch("deployments", "demo-engine", {"spec": {"replicas": 7}})
    bench.patch("services", "demo", {"metadata": {"annotations": {"somebody": "else"}}})
    bench.patch("services", "demo", {"metadata": {"labels": {"app.kubernetes.io/instance": "other"}}})
    bench.patch("services", "demo-etcd", {"metadata": {"labels": {"autellix.dev/cluster": None}}})
    eventually(
        lambda: bench.get("services", "demo-etcd")["metadata"]["labels"].get("autellix.dev/cluster") == "demo",
        "the label by which it is found is back",
    )
    eventually(lambda: bench.get("deployments", "demo-engine")["spec"]["replicas"] == 1, "replicas are 1 again")
    eventually(
        lambda: bench.get("services", "demo")["metadata"]["labels"]["app.kubernetes.io/instance"] == "demo",
        "the label is back",
    )
    assert bench.get("services", "demo")["metadata"]["annotations"] == {"somebody": "else"}


def test_a_deleted_child_comes_back(bench: Bench) -> None:
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


def accepted_keys(bench: Bench) -> list[str]:
    secret = bench.get("secrets", "demo-engine-accepted-keys")
    return base64.b64decode(secret["data"]["keys"]).decode().splitlines()


def used_key(bench: Bench) -> str:
    return base64.b64decode(bench.get("secrets", "demo-engine-key")["data"]["api-key"]).decode()


def test_a_new_engine_key_is_accepted_beside_the_former_one_for_a_while_and_moves_no_pod(bench: Bench) -> None:
    bench.make_cluster()
    bench.make_ready()
    old = used_key(bench)
    assert len(old) >= 32
    assert accepted_keys(bench) == [old]
    workloads = ("deployments", "demo-engine"), ("deployments", "demo-controller"), ("statefulsets", "demo-etcd")
    before = {each: bench.get(*each)["metadata"]["generation"] for each in workloads}
    bench.delete("secrets", "demo-engine-key")
    eventually(lambda: len(accepted_keys(bench)) == 2, "the new key is accepted")
    assert accepted_keys(bench) == [used_key(bench), old]
    until = "autellix.dev/former-keys-until"
    annotations = bench.get("secrets", "demo-engine-accepted-keys")["metadata"]["annotations"]
    left = datetime.fromisoformat(annotations[until]) - datetime.now(UTC)
    assert timedelta(minutes=9) < left < timedelta(minutes=11)

    past = {"metadata": {"annotations": {until: "2026-01-01T00:00:00Z"}}}
    bench.patch("secrets", "demo-engine-accepted-keys", past)
    eventually(lambda: len(accepted_keys(bench)) == 1, "the former key is dropped when its time is over")
    assert accepted_keys(bench) == [used_key(bench)]
    assert {each: bench.get(*each)["metadata"]["generation"] for each in workloads} == before
    story = str((bench.events("demo"), bench.get("autellixclusters", "demo")))
    assert old not in story
    assert used_key(bench) not in story


def test_a_changed_spec_rolls_and_status_speaks_of_the_new_generation(bench: Bench) -> None:
    bench.make_cluster()
    bench.make_ready()
    pods = {pod["metadata"]["name"] for pod in bench.find("pods", "demo")}
    bench.patch("autellixclusters", "demo", {"spec": {"scheduling": {"policy": "Fcfs"}}})
    # Which of the two it is depends on how far Kubernetes has come. Nobody makes the new pods ready yet.
    eventually(lambda: bench.condition("demo", "EnginesReady")["reason"] in ("Updating", "Starting"), "engines change")
    assert bench.condition("demo", "Ready")["status"] == "False"
    assert bench.condition("demo", "Progressing")["status"] == "True"
    bench.make_ready()
    arguments = bench.get("deployments", "demo-engine")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert '"policy":"fcfs"' in " ".join(arguments)
    now = {pod["metadata"]["name"] for pod in bench.find("pods", "demo")}
    assert all("engine" not in name for name in pods & now)
    assert any("controller" in name for name in pods & now)
    # By it controllers tell which engines stay.
    (slice_,) = (each for each in bench.find("endpointslices", "demo") if "engine" in each["metadata"]["name"])
    revision = slice_["metadata"]["labels"]["autellix.dev/engine-revision"]
    assert [f"-{revision}-" in name for name in sorted(now) if "engine" in name] == [True]


def test_scale_subresource_sets_engines(bench: Bench) -> None:
    bench.make_cluster()
    bench.make_ready()
    bench.patch("autellixclusters", "demo", {"spec": {"replicas": 3}}, "scale")
    eventually(lambda: bench.get("deployments", "demo-engine")["spec"]["replicas"] == 3, "3 engines are wanted")
    bench.make_ready()
    scale = bench.admin.request("GET", bench.path("autellixclusters", "demo", "scale"))
    assert scale["status"]["replicas"] == 3
    assert "app.kubernetes.io/component=engine" in scale["status"]["selector"]
    bench.patch("autellixclusters", "demo", {"spec": {"replicas": 0}}, "scale")
    bench.with_kubelet("demo", lambda: bench.condition("demo", "Ready")["reason"] == "ScaledToZero", "no engine")
    assert not [pod for pod in bench.find("pods", "demo") if "engine" in pod["metadata"]["name"]]
    assert bench.condition("demo", "ControllerReady")["status"] == "True", "the Service keeps its endpoints"


def test_what_calls_meet_without_engines_reaches_the_controllers(bench: Bench) -> None:
    bench.make_cluster(engine={"replicas": 0}, controller={"deadlines": {"holdSeconds": 300}})
    message = "no engine is wanted: calls are held for at most 300 s"
    bench.with_kubelet("demo", lambda: bench.condition("demo", "Ready")["message"] == message, "it says so")
    (container,) = bench.get("deployments", "demo-controller")["spec"]["template"]["spec"]["containers"]
    assert {"name": "AUTELLIX_CONTROLLER_HOLD_SECONDS", "value": "300"} in container["env"]


def test_a_cluster_made_again_at_once_waits_for_its_predecessors_children_to_go(bench: Bench) -> None:
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
    bench.make_cluster()
    bench.make_ready()
    before = intent(bench.get("deployments", "demo-engine"))
    template = {"spec": {"containers": [{"name": "engine", "args": ["serve"]}]}}
    bench.patch("autellixclusters", "demo", {"spec": {"engine": {"template": template}}})
    condition = bench.wait_for("demo", "Ready", "InvalidSpec")
    assert condition["message"].startswith("spec.engine.template.spec.containers[engine].args: ")
    assert intent(bench.get("deployments", "demo-engine")) == before
    assert bench.events("demo")[-1]["type"] == "Warning"
    bench.patch("autellixclusters", "demo", {"spec": {"engine": {"template": None}}})
    bench.wait_for("demo", "Ready", "Available")


def test_an_object_the_server_refuses_is_a_condition_and_the_other_parts_go_on(bench: Bench) -> None:
    template = {"spec": {"containers": [{"name": "engine", "imagePullPolicy": "Sometimes"}]}}
    bench.make_cluster(engine={"template": template})
    condition = bench.wait_for("demo", "EnginesReady", "ApplyRefused")
    assert "imagePullPolicy" in condition["message"]
    bench.get("deployments", "demo-controller")
    bench.patch("autellixclusters", "demo", {"spec": {"engine": {"template": None}}})
    bench.make_ready()
    bench.patch("autellixclusters", "demo", {"spec": {"engine": {"template": template, "replicas": 2}}})
    bench.wait_for("demo", "EnginesReady", "ApplyRefused")
    status = bench.get("autellixclusters", "demo")["status"]
    assert (status["replicas"], status["readyReplicas"], status["engines"]) == (1, 1, "1/2"), "the one serves on"
    template["spec"]["containers"][0] = {"name": "engine", "imagePolicy": "Never"}
    bench.patch("autellixclusters", "demo", {"spec": {"engine": {"template": None}}})
    bench.patch("autellixclusters", "demo", {"spec": {"engine": {"template": template}}})
    eventually(lambda: "imagePolicy" in bench.condition("demo", "EnginesReady")["message"], "unknown field is told")


def test_pods_that_are_refused_are_told(bench: Bench) -> None:
    template = {"spec": {"securityContext": {"runAsNonRoot": False, "runAsUser": 0}}}
    bench.make_cluster(engine={"template": template})
    condition = bench.wait_for("demo", "EnginesReady", "PodsRefused")
    assert "restricted" in condition["message"]


def test_a_name_that_is_taken_is_a_condition_and_the_object_stays_untouched(bench: Bench) -> None:
    service = {"metadata": {"name": "demo"}, "spec": {"ports": [{"port": 5432}]}}
    theirs = bench.create("services", service)
    bench.make_cluster()
    condition = bench.wait_for("demo", "ControllerReady", "NameConflict")
    assert "Service demo" in condition["message"]
    assert bench.get("services", "demo")["metadata"]["resourceVersion"] == theirs["metadata"]["resourceVersion"]


def test_a_missing_secret_is_named_and_its_arrival_noticed(bench: Bench) -> None:
    bench.make_cluster(controller={"apiKeysSecretRef": {"name": "keys"}})
    condition = bench.wait_for("demo", "ControllerReady", "SecretMissing")
    assert condition["message"] == "spec.controller.apiKeysSecretRef: there is no Secret keys"
    bench.create("secrets", {"metadata": {"name": "keys"}, "stringData": {"other": "x"}})
    eventually(lambda: "has no key keys" in bench.condition("demo", "ControllerReady")["message"], "no key")
    bench.patch("secrets", "keys", {"stringData": {"keys": "someone:sk-1"}})
    bench.wait_for("demo", "ControllerReady", "Starting")
    bench.make_ready()
    bench.delete("secrets", "keys")
    bench.wait_for("demo", "Degraded", "SecretMissing")
    assert bench.condition("demo", "Ready")["status"] == "True"


def test_a_changed_config_map_behind_the_environment_starts_engines_anew(bench: Bench) -> None:
    source = {"configMapKeyRef": {"name": "common", "key": "level"}}
    bench.make_cluster(engine={"env": [{"name": "LEVEL", "valueFrom": source}]})
    bench.wait_for("demo", "EnginesReady", "ConfigMapMissing")
    bench.create("configmaps", {"metadata": {"name": "common"}, "data": {"level": "low"}})
    eventually(lambda: bench.condition("demo", "EnginesReady")["reason"] in ("Starting", "Updating"), "it is found")
    before = bench.get("deployments", "demo-engine")["metadata"]["generation"]
    controllers = bench.get("deployments", "demo-controller")["metadata"]["generation"]
    bench.patch("configmaps", "common", {"data": {"level": "high"}})
    eventually(lambda: bench.get("deployments", "demo-engine")["metadata"]["generation"] > before, "engines roll")
    assert bench.get("deployments", "demo-controller")["metadata"]["generation"] == controllers


def test_engines_that_serve_are_not_replaced_for_what_is_missing_nor_for_a_leaked_key(bench: Bench) -> None:
    source = {"configMapKeyRef": {"name": "common", "key": "level"}}
    bench.create("configmaps", {"metadata": {"name": "common"}, "data": {"level": "low"}})
    bench.make_cluster(engine={"env": [{"name": "LEVEL", "valueFrom": source}]})
    bench.make_ready()
    before = bench.get("deployments", "demo-engine")["metadata"]["generation"]
    bench.delete("configmaps", "common")
    bench.wait_for("demo", "Degraded", "ConfigMapMissing")
    assert bench.condition("demo", "Ready")["status"] == "True"
    bench.create("configmaps", {"metadata": {"name": "common"}, "data": {"level": "low"}})
    bench.wait_for("demo", "Degraded", "Available")
    key = used_key(bench)
    for name in ("demo-engine-key", "demo-engine-accepted-keys"):
        bench.delete("secrets", name)
    eventually(lambda: accepted_keys(bench) == [used_key(bench)] != [key], "the key is another one")
    assert bench.get("deployments", "demo-engine")["metadata"]["generation"] == before


def test_members_are_not_started_on_a_volume_of_another_table(bench: Bench) -> None:
    retained = {"whenDeleted": "Retain"}
    bench.make_cluster(processTable={"etcd": {"managed": retained}})
    bench.make_ready()
    bench.delete("autellixclusters", "demo")
    bench.with_kubelet(
        "demo", lambda: bench.children("demo").keys() == {("persistentvolumeclaims", CLAIM)}, "it is gone"
    )
    bench.make_cluster(processTable={"etcd": {"managed": retained | {"replicas": 3}}})
    condition = bench.wait_for("demo", "ProcessTableReady", "NameConflict")
    assert CLAIM in condition["message"]
    assert bench.gone("statefulsets", "demo-etcd")
    bench.delete("persistentvolumeclaims", CLAIM)
    bench.make_ready()


def test_a_paused_cluster_is_left_alone_until_the_annotation_goes(bench: Bench) -> None:
    bench.make_cluster()
    bench.make_ready()
    bench.patch("autellixclusters", "demo", {"metadata": {"annotations": {"autellix.dev/paused": "true"}}})
    eventually(
        lambda: (
            [each["reason"] for each in bench.get("autellixclusters", "demo")["status"]["conditions"]].count("Paused")
            == 1
        ),
        "the cluster is paused",
    )
    bench.patch("autellixclusters", "demo", {"spec": {"engine": {"replicas": 2}}})
    bench.delete("poddisruptionbudgets", "demo-engine")
    # The next change of a child is looked at after those.
    bench.patch("deployments", "demo-controller", {"spec": {"replicas": 1}})
    eventually(lambda: bench.gone("poddisruptionbudgets", "demo-engine"), "the budget is gone")
    live = bench.get("autellixclusters", "demo")
    assert live["status"]["observedGeneration"] < live["metadata"]["generation"]
    assert bench.get("deployments", "demo-engine")["spec"]["replicas"] == 1
    bench.patch("autellixclusters", "demo", {"metadata": {"annotations": {"autellix.dev/paused": None}}})
    eventually(lambda: bench.get("deployments", "demo-engine")["spec"]["replicas"] == 2, "2 engines are wanted")
    eventually(lambda: bench.get("deployments", "demo-controller")["spec"]["replicas"] == 2, "2 controllers again")
    eventually(lambda: bench.get("poddisruptionbudgets", "demo-engine"), "the budget is back")
    bench.make_ready()


def test_etcd_children_go_when_the_spec_names_an_etcd_elsewhere(bench: Bench) -> None:
    bench.make_cluster()
    bench.make_ready()
    external = {"processTable": {"etcd": {"managed": None, "endpoints": ["etcd.example:2379"]}}}
    bench.patch("autellixclusters", "demo", {"spec": external})
    kinds = ("statefulsets", "services", "serviceaccounts", "poddisruptionbudgets")
    eventually(lambda: all(bench.gone(plural, "demo-etcd") for plural in kinds), "etcd is gone")
    eventually(lambda: bench.gone("secrets", "demo-etcd-ca"), "its certificates are gone")
    bench.with_kubelet("demo", lambda: not bench.find("persistentvolumeclaims", "demo"), "claims are gone")
    # No container is there that could tell.
    assert bench.wait_for("demo", "ProcessTableReady", "NotReported")["status"] == "Unknown"
    variables = bench.get("deployments", "demo-controller")["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "AUTELLIX_CONTROLLER_TABLE", "value": "etcd://etcd.example:2379"} in variables
