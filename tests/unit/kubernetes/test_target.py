from pathlib import Path

import pytest

from onenode import target
from onenode.errors import OnenodeError
from onenode.images import IMAGES
from onenode.target import ContextTarget, LabTarget, chosen_context, named_images

NAMED = {f"AUTELLIX_{name.upper()}_IMAGE": f"registry.example/{name}:1" for name in IMAGES}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for kubectl and helm: notes its arguments, knows two contexts, forwards a port."""
    script = tmp_path / "program"
    script.write_text(
        "#!/bin/sh\n"
        f'echo "$*" >> {tmp_path}/calls\n'
        'case "$*" in\n'
        "*get-contexts*) echo mine; echo theirs;;\n"
        '*"port-forward"*missing*) echo "pods missing not found" >&2; exit 1;;\n'
        '*port-forward*) echo "Forwarding from 127.0.0.1:4321 -> 80"; exec sleep 60;;\n'
        "*) cat; echo done;;\n"
        "esac\n"
    )
    script.chmod(0o755)
    monkeypatch.setattr(target, "binary", lambda name: script)
    return tmp_path / "calls"


def test_without_a_named_context_no_cluster_of_the_person_is_touched(programs: Path) -> None:
    assert chosen_context({"KUBECONFIG": "/home/a/.kube/config"}) is None
    assert chosen_context({"KUBE_CONTEXT": ""}) is None
    assert not programs.exists()


def test_a_context_that_does_not_exist_is_refused_with_those_there_are(programs: Path) -> None:
    with pytest.raises(OnenodeError, match="no context is called 'other'; there are mine, theirs"):
        chosen_context({"KUBE_CONTEXT": "other", **NAMED})


def test_images_must_be_named_for_a_cluster_that_cannot_import_them() -> None:
    incomplete = {name: value for name, value in NAMED.items() if "ENGINE" not in name}
    with pytest.raises(OnenodeError, match="set AUTELLIX_ENGINE_IMAGE "):
        named_images(incomplete)
    assert named_images(NAMED)["engine"] == "registry.example/engine:1"


def test_what_only_removes_needs_no_images_but_a_context_that_exists(programs: Path) -> None:
    assert chosen_context({"KUBE_CONTEXT": "mine"}, installs=False) is not None
    for installs in (True, False):
        with pytest.raises(OnenodeError, match="no context is called 'other'"):
            chosen_context({"KUBE_CONTEXT": "other"}, installs=installs)


def test_every_command_names_the_context(programs: Path) -> None:
    chosen = chosen_context({"KUBE_CONTEXT": "mine", **NAMED})
    assert chosen is not None
    assert chosen.kubectl("apply", "-f", "-", stdin="{}\n") == "{}\ndone\n"
    chosen.helm("list")
    assert programs.read_text().splitlines()[1:] == ["kubectl --context=mine apply -f -", "--kube-context=mine list"]
    assert chosen.image("etcd") == "registry.example/etcd:1"


def test_a_service_of_another_cluster_is_reached_by_a_forwarded_port_that_ends_with_its_use(programs: Path) -> None:
    chosen = ContextTarget("mine", {})
    with chosen.reach("agents", "service/main", 80) as url:
        assert url == "http://127.0.0.1:4321"
    assert programs.read_text().splitlines()[-1].endswith("--address=127.0.0.1 service/main :80")


def test_a_port_that_cannot_be_forwarded_is_an_error_with_its_reason(programs: Path) -> None:
    with (
        pytest.raises(OnenodeError, match="pods missing not found"),
        ContextTarget("mine", {}).reach("a", "pod/missing", 80),
    ):
        pytest.fail("reached")


def test_in_a_lab_services_and_pods_are_reached_at_their_own_addresses() -> None:
    class FakeLab:
        def kubectl(self, *arguments: str, stdin: str | None = None, seconds: float = 300) -> str:
            return {"service/main": "10.96.0.7", "pod/one": "10.244.0.7"}[arguments[1]]

    lab = LabTarget(FakeLab())  # type: ignore[arg-type]
    with lab.reach("agents", "service/main", 80) as service, lab.reach("agents", "pod/one", 8000) as pod:
        assert (service, pod) == ("http://10.96.0.7:80", "http://10.244.0.7:8000")
    assert lab.image("etcd") == IMAGES["etcd"]
