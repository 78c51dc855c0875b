"""A real Kubernetes API without nodes: etcd, kube-apiserver and kube-controller-manager on loopback.

Objects are validated, defaulted, owned and garbage-collected as in any cluster; pods are made and never run. Set-up
takes some five seconds; one server serves a whole test session, a namespace for each test keeps tests apart.
"""

import base64
import json
import os
import secrets
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from support.ports import free_ports

_START_SECONDS = 120
# What the tests need of the controller manager; the others would only take time.
_CONTROLLERS = (
    "deployment-controller,replicaset-controller,statefulset-controller,garbage-collector-controller,"
    "namespace-controller,serviceaccount-controller,persistentvolumeclaim-protection-controller,"
    "horizontal-pod-autoscaler-controller,endpointslice-controller"
)


# What service accounts ask for, without contents: the rights of the operator are held against it.
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}


class ApiError(Exception):
    """An answer of the API server that is no success."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(f"{status}: {body.get('message', body)}")
        self.status = status
        self.body = body


@dataclass(frozen=True)
class Client:
    """Plain synchronous access with one bearer token: what a person with kubectl could do."""

    url: str
    ca_file: Path
    token: str
    audit_log: Path | None = None
    """What service accounts asked for, one JSON object a line."""

    def request(
        self, method: str, path: str, body: object = None, content_type: str = "application/json"
    ) -> dict[str, Any]:
        """One request; the decoded answer. Raises ApiError."""
        request = urllib.request.Request(self.url + path, method=method)
        request.add_header("Authorization", f"Bearer {self.token}")
        request.add_header("Content-Type", content_type)
        data = None if body is None else json.dumps(body).encode()
        context = ssl.create_default_context(cafile=str(self.ca_file))
        try:
            with urllib.request.urlopen(request, data, timeout=30, context=context) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode()
            try:
                raise ApiError(error.code, json.loads(text)) from None
            except json.JSONDecodeError:
                raise ApiError(error.code, {"message": text}) from None
        return json.loads(text) if text.startswith("{") else {"text": text}

    def audited(self, namespace: str, service_account: str) -> list[dict[str, Any]]:
        """What a service account has asked for so far."""
        assert self.audit_log is not None
        events = [json.loads(line) for line in self.audit_log.read_text().splitlines()]
        user = f"system:serviceaccount:{namespace}:{service_account}"
        return [event for event in events if event["user"]["username"] == user]

    def kubeconfig(self, namespace: str = "default") -> dict[str, Any]:
        """A kubeconfig with this client's rights."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [
                {"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}},
            ],
            "clusters": [
                {
                    "name": "test",
                    "cluster": {
                        "server": self.url,
                        "certificate-authority-data": base64.b64encode(self.ca_file.read_bytes()).decode(),
                    },
                }
            ],
            "users": [{"name": "test", "user": {"token": self.token}}],
        }

    def service_account(self, namespace: str, name: str) -> "Client":
        """A client with the rights of a service account."""
        answer = self.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}},
        )
        return Client(self.url, self.ca_file, answer["status"]["token"])


@contextmanager
def api_server(kube: Path, *, controllers: bool = True, emulated: str | None = None) -> Iterator[Client]:
    """Runs the servers; gives a client with all rights.

    ``kube`` is the program that is etcd and each part of Kubernetes, by the name it is called. ``emulated`` is an older
    release of Kubernetes, such as "1.32", that the API server behaves like: what came later, it refuses.
    Raises RuntimeError with the end of the log of the part that did not start.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="apiserver-")))
        token = secrets.token_hex(16)
        client_port, peer_port, api_port, manager_port = free_ports(4)
        (folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
        _key_pair(folder / "sa.key", folder / "sa.pub")
        (folder / "audit-policy.yaml").write_text(yaml.safe_dump(_AUDIT_POLICY))
        etcd_url = f"http://127.0.0.1:{client_port}"
        peer_url = f"http://127.0.0.1:{peer_port}"
        stack.enter_context(
            _running(
                kube,
                folder,
                "etcd",
                f"--data-dir={folder}/etcd",
                "--unsafe-no-fsync",
                "--log-level=warn",
                f"--listen-client-urls={etcd_url}",
                f"--advertise-client-urls={etcd_url}",
                f"--listen-peer-urls={peer_url}",
                f"--initial-advertise-peer-urls={peer_url}",
                f"--initial-cluster=default={peer_url}",
            )
        )
        server = stack.enter_context(
            _running(
                kube,
                folder,
                "kube-apiserver",
                f"--etcd-servers={etcd_url}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                f"--secure-port={api_port}",
                f"--cert-dir={folder}/certificates",
                f"--token-auth-file={folder}/tokens.csv",
                "--authorization-mode=RBAC",
                # The strictest owner rule, so that the operator's rights are shown to be enough where it is on.
                "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={folder}/sa.pub",
                f"--service-account-signing-key-file={folder}/sa.key",
                "--endpoint-reconciler-type=none",
                f"--audit-policy-file={folder}/audit-policy.yaml",
                f"--audit-log-path={folder}/audit.log",
                # An alpha gate is none that an emulated release could have.
                f"--emulated-version=kube={emulated}" if emulated else "--feature-gates=HPAScaleToZero=true",
            )
        )
        certificate = folder / "certificates" / "apiserver.crt"
        admin = Client(f"https://127.0.0.1:{api_port}", certificate, token, folder / "audit.log")
        _wait_until_ready(admin, server, folder / "kube-apiserver.log")
        if controllers:
            kubeconfig = folder / "admin.kubeconfig"
            kubeconfig.write_text(yaml.safe_dump(admin.kubeconfig()))
            stack.enter_context(
                _running(
                    kube,
                    folder,
                    "kube-controller-manager",
                    f"--kubeconfig={kubeconfig}",
                    f"--secure-port={manager_port}",
                    "--bind-address=127.0.0.1",
                    f"--cert-dir={folder}/manager",
                    "--leader-elect=false",
                    "--kube-api-qps=300",
                    "--kube-api-burst=500",
                    f"--service-account-private-key-file={folder}/sa.key",
                    f"--controllers={_CONTROLLERS}",
                    "--horizontal-pod-autoscaler-sync-period=2s",
                )
            )
        yield admin


def _key_pair(private: Path, public: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


@contextmanager
def _running(kube: Path, folder: Path, part: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    with (folder / f"{part}.log").open("wb") as log:
        process = subprocess.Popen([kube, part, *arguments], stdout=log, stderr=log, env=environment, cwd=folder)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_ready(admin: Client, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            admin.request("GET", "/readyz")
            # Made by a hook after start; without it no namespaced object can be created.
            admin.request("GET", "/api/v1/namespaces/default")
            return
        except (ApiError, OSError) as error:
            if server.poll() is not None or time.monotonic() > deadline:
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
                raise RuntimeError(f"kube-apiserver did not get ready ({error}); the end of its log:\n{tail}") from None
            time.sleep(0.1)
