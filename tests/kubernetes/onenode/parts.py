"""The command line of every part of the cluster. Pure: restarting a part needs nothing but the layout."""

from collections.abc import Mapping
from pathlib import Path

from onenode.layout import NODE_ADDRESS, NODE_NAME, POD_NETWORK, SERVICE_NETWORK, Layout
from onenode.policies import QUEUE

ETCD_ENDPOINT = "http://127.0.0.1:2379"
KUBE_PROGRAMS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubectl",
)


def commands(layout: Layout) -> dict[str, list[str]]:
    """The command of each part, by its name, in the order of their start."""
    etc, pki = layout.configuration, layout.pki
    return {
        "containerd": ["containerd", "-c", f"{etc}/containerd.toml"],
        "etcd": [
            "etcd",
            f"--data-dir={layout.root}/etcd",
            "--unsafe-no-fsync",  # what is thrown away need not survive a power cut
            "--log-level=warn",
            f"--listen-client-urls={ETCD_ENDPOINT}",
            f"--advertise-client-urls={ETCD_ENDPOINT}",
        ],
        "kube-apiserver": ["kube-apiserver", *_flags(_api_server(pki)), "--allow-privileged"],
        "kube-controller-manager": ["kube-controller-manager", *_flags(_controller_manager(layout))],
        "kube-scheduler": ["kube-scheduler", *_flags(_identity(layout.kubeconfig("scheduler")))],
        "kubelet": [
            "kubelet",
            f"--config={etc}/kubelet.json",
            f"--kubeconfig={layout.kubeconfig('kubelet')}",
            f"--node-ip={NODE_ADDRESS}",
            f"--hostname-override={NODE_NAME}",
        ],
        "kube-proxy": ["kube-proxy", f"--config={etc}/kube-proxy.json"],
        "policies": [
            "policies",
            f"--kubeconfig={layout.kubeconfig('policies')}",
            f"--hostname-override={NODE_NAME}",
            f"--nfqueue-id={QUEUE}",
        ],
        "coredns": ["coredns", "-conf", f"{etc}/Corefile"],
    }


def environment(layout: Layout) -> dict[str, str]:
    """The whole environment of every part: nothing of the person's own, above all no proxy, reaches them."""
    system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": f"{layout.programs}:{system}", "HOME": "/root", "LANG": "C.UTF-8"}


def _api_server(pki: Path) -> dict[str, str]:
    return {
        "etcd-servers": ETCD_ENDPOINT,
        "advertise-address": NODE_ADDRESS,
        "service-cluster-ip-range": SERVICE_NETWORK,
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "tls-cert-file": f"{pki}/apiserver.crt",
        "tls-private-key-file": f"{pki}/apiserver.key",
        "client-ca-file": f"{pki}/ca.crt",
        "kubelet-client-certificate": f"{pki}/apiserver-kubelet.crt",
        "kubelet-client-key": f"{pki}/apiserver-kubelet.key",
        "kubelet-certificate-authority": f"{pki}/ca.crt",
        "kubelet-preferred-address-types": "InternalIP",
        "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
        "service-account-key-file": f"{pki}/sa.pub",
        "service-account-signing-key-file": f"{pki}/sa.key",
        "requestheader-client-ca-file": f"{pki}/front-proxy-ca.crt",
        "requestheader-allowed-names": "front-proxy",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": f"{pki}/front-proxy.crt",
        "proxy-client-key-file": f"{pki}/front-proxy.key",
    }


def _controller_manager(layout: Layout) -> dict[str, str]:
    pki = layout.pki
    return _identity(layout.kubeconfig("controller-manager")) | {
        "kube-api-qps": "300",  # at the default of 20 the first service accounts take five seconds
        "kube-api-burst": "500",
        "use-service-account-credentials": "true",
        "service-account-private-key-file": f"{pki}/sa.key",
        "root-ca-file": f"{pki}/ca.crt",
        "cluster-signing-cert-file": f"{pki}/ca.crt",
        "cluster-signing-key-file": f"{pki}/ca.key",
        "cluster-cidr": POD_NETWORK,
        "allocate-node-cidrs": "true",
        "service-cluster-ip-range": SERVICE_NETWORK,
        "flex-volume-plugin-dir": "/var/lib/kubelet/flexvolume",
        "enable-hostpath-provisioner": "true",
    }


def _identity(kubeconfig: Path) -> dict[str, str]:
    """How a part reaches the API server and checks who calls it. There is one of each, so none elects a leader."""
    names = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    return {name: str(kubeconfig) for name in names} | {"leader-elect": "false"}


def _flags(values: Mapping[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in values.items()]
