"""The documented backup and restore of the process table, run as written.

Against the API server, with the Secrets that the operator made and the etcd that its StatefulSet describes. There is no
kubelet: etcd runs beside the test, on the ports and in the folder that the pods would have, and the few commands that
go through a kubelet are shell functions.
"""

import os
import re
import subprocess
import urllib.error
import urllib.request
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from onenode.binaries import binary
from support.chart import REPOSITORY
from support.operator_bench import Bench, eventually
from support.ports import free_ports

#: What goes through a kubelet: `exec` and `cp` reach the volume of the member, nothing has to be waited for, and the
#: port that is forwarded is the one that etcd listens on.
PRELUDE = """\
set -euo pipefail
kubectl() {
  case "$*" in
    "exec deploy/demo-controller -- "* | "port-forward pod/demo-etcd-0 "* | "wait --for=condition=Ready "*) ;;
    "exec demo-restore -- rm -rf /member/data") rm -rf "$MEMBER/data" ;;
    "cp data demo-restore:/member/data") cp -r data "$MEMBER/data" ;;
    *) command kubectl "$@" ;;
  esac
}
"""


def documented() -> tuple[str, str, str]:
    """The commands of the backup, of the restore, and of the restore of three members."""
    page = (REPOSITORY / "docs" / "operations.md").read_text()
    section = page.partition("\n## Back up and restore the process table\n")[2].partition("\n## ")[0]
    backup, restore, of_three = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return backup, restore, of_three


class Member:
    """The member of etcd that the StatefulSet describes, as a process on loopback."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.volume, self._tls, self._folder = folder / "member", folder / "tls", folder
        self.client, self._peer, self._metrics = free_ports(3)
        self._namespace = bench.namespace
        (container,) = bench.get("statefulsets", "demo-etcd")["spec"]["template"]["spec"]["containers"]
        self._arguments = [self.on_loopback(each) for each in container["args"]]
        self.volume.mkdir()
        self._tls.mkdir()
        for name, value in bench.get("secrets", "demo-etcd-server")["data"].items():
            (self._tls / name).write_bytes(b64decode(value))

    def on_loopback(self, text: str) -> str:
        """A text with the places that the pod would have replaced by those that it has here."""
        places = {
            "$(POD_NAME)": "demo-etcd-0",
            f"demo-etcd-0.demo-etcd.{self._namespace}.svc:2380": f"localhost:{self._peer}",
            "0.0.0.0:2379": f"127.0.0.1:{self.client}",
            "0.0.0.0:2380": f"127.0.0.1:{self._peer}",
            "0.0.0.0:2381": f"127.0.0.1:{self._metrics}",
            "/var/lib/etcd": str(self.volume),
            "/etc/etcd/tls": str(self._tls),
        }
        for before, after in places.items():
            text = text.replace(before, after)
        return text

    def _serves(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError):
            return False

    @contextmanager
    def running(self) -> Iterator[None]:
        """It serves meanwhile."""
        log = self._folder / "etcd.log"
        with log.open("ab") as output:
            process = subprocess.Popen([binary("kube"), "etcd", *self._arguments], stdout=output, stderr=output)
        try:
            eventually(self._serves, f"etcd serves; its log: {log}")
            yield
        finally:
            process.terminate()
            process.wait(20)


@pytest.fixture
def environment(bench: Bench, tmp_path: Path) -> dict[str, str]:
    """For the shell: the tools by their names, and the rights of an administrator."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, program in (("kubectl", "kube"), ("etcdctl", "etcdctl"), ("etcdutl", "etcdutl")):
        (tools / name).symlink_to(binary(program))
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(bench.admin.kubeconfig(bench.namespace)))
    found = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return found | {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "KUBECONFIG": str(kubeconfig),
        "HOME": str(tmp_path),
        "MEMBER": str(tmp_path / "member"),
    }


def test_the_process_table_is_restored_from_a_backup_by_the_documented_commands(
    bench: Bench, environment: dict[str, str], tmp_path: Path
) -> None:
    desk = tmp_path / "desk"
    desk.mkdir()
    (desk / "docs").symlink_to(REPOSITORY / "docs")

    def shell(commands: str) -> str:
        script = PRELUDE + commands
        command = ["bash", "-c", script]
        done = subprocess.run(command, cwd=desk, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    backup, restore, of_three = documented()
    with bench.operator():
        bench.make_cluster()
        bench.make_ready()
        member = Member(bench, tmp_path)
        place = f"127.0.0.1:{member.client}"
        etcdctl = f"etcdctl --endpoints=https://{place} --cacert=ca.crt --cert=tls.crt --key=tls.key"
        backup = backup.replace("127.0.0.1:12379", place)
        secrets, snapshot = backup.split("kubectl port-forward")
        with member.running():
            shell(f"{secrets}\n{etcdctl} put /autellix/program before")
            stranger = f"etcdctl --endpoints=https://{place} --cacert=ca.crt --command-timeout=1s get / --prefix"
            assert shell(f"{stranger} || echo refused") == "refused\n"
            shell(f"kubectl port-forward{snapshot}\n{etcdctl} put /autellix/program after")
        # As if the cluster were in the namespace of the documentation.
        restore = restore.replace(".default.svc:", f".{bench.namespace}.svc:")
        shell(member.on_loopback(restore))
        with member.running():
            assert shell(f"{etcdctl} get /autellix/program --print-value-only") == "before\n"
        bench.make_ready()
        assert bench.get("statefulsets", "demo-etcd")["spec"]["replicas"] == 1
        assert bench.gone("pods", "demo-restore")
        shell(of_three)
        assert all((desk / f"data-{number}" / "member" / "snap" / "db").exists() for number in range(3))
