"""Configuration files of the lab's parts, as text. Pure: the same layout gives the same files."""

import json
from pathlib import Path

from onenode.layout import (
    CLUSTER_DOMAIN,
    DNS_SERVICE_ADDRESS,
    NODE_ADDRESS,
    NODE_NAME,
    NODE_POD_NETWORK,
    POD_NETWORK,
    Layout,
)

PAUSE_IMAGE = "localhost/pause:dev"
DNS_READY_PORT = 8181

# What the kubelet would set for the whole machine. Inside the lab, files with these values lie over the real ones: the
# kubelet finds what it wants and writes nothing.
KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def files(layout: Layout) -> dict[Path, str]:
    """Every configuration file of the lab, by the path it is written to."""
    etc = layout.configuration
    return {
        etc / "containerd.toml": containerd(layout),
        etc / "kubelet.json": _document(kubelet(layout)),
        etc / "kube-proxy.json": _document(kube_proxy(layout)),
        etc / "Corefile": corefile(layout),
        etc / "resolv.conf": resolv_conf(),
        etc / "hosts": hosts(),
        layout.cni_configuration / "10-lab.conflist": _document(pod_network()),
    }


def containerd(layout: Layout) -> str:
    """Containerd: our sandbox image, our network, and no attempt to lower anyone's out-of-memory score.

    Lowering it takes a privilege (CAP_SYS_RESOURCE) that many containers and sandboxes do not give to root.
    """
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "{layout.root}/containerd"
state = "/run/containerd"
oom_score = 0
[grpc]
  address = "{layout.containerd_socket}"
[{cri}]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  [{cri}.containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [{cri}.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [{cri}.containerd.runtimes.runc.options]
        SystemdCgroup = false
  [{cri}.cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{layout.cni_configuration}"
"""


def pod_network() -> dict[str, object]:
    """Pods on point-to-point links: all they send is routed by the node, so Service addresses work between any two."""
    ranges = [[{"subnet": NODE_POD_NETWORK}]]
    addresses = {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
    return {
        "cniVersion": "0.4.0",
        "name": "lab",
        "plugins": [
            {"type": "ptp", "ipMasq": False, "ipam": addresses},
            {"type": "portmap", "capabilities": {"portMappings": True}, "snat": False},
        ],
    }


def kubelet(layout: Layout) -> dict[str, object]:
    """KubeletConfiguration. Images are never collected: there is no registry to pull them from again."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.cgroup}",
        "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{layout.pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{layout.pki}/kubelet-server.crt",
        "tlsPrivateKeyFile": f"{layout.pki}/kubelet-server.key",
        "clusterDomain": CLUSTER_DOMAIN,
        "clusterDNS": [DNS_SERVICE_ADDRESS],
        "resolvConf": f"{layout.configuration}/resolv.conf",
        "volumePluginDir": "/var/lib/kubelet/flexvolume",
        "oomScoreAdj": 0,
        "maxOpenFiles": 20000,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
    }


def kube_proxy(layout: Layout) -> dict[str, object]:
    """KubeProxyConfiguration. The conntrack limits are the whole machine's, so they are left alone."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": POD_NETWORK,
        "hostnameOverride": NODE_NAME,
        "oomScoreAdj": 0,
        "conntrack": {"maxPerCore": 0, "min": 0},
        "clientConnection": {"kubeconfig": str(layout.kubeconfig("kube-proxy"))},
    }


def corefile(layout: Layout) -> str:
    """CoreDNS: names of the cluster, and a quick no to all others.

    Two blocks: within one, ``template`` would answer before ``kubernetes`` is asked.
    """
    return f"""{CLUSTER_DOMAIN}:53 in-addr.arpa:53 ip6.arpa:53 {{
    bind {NODE_ADDRESS}
    errors
    ready 127.0.0.1:{DNS_READY_PORT}
    kubernetes {{
        kubeconfig {layout.kubeconfig("coredns")}
        ttl 5
    }}
}}
.:53 {{
    bind {NODE_ADDRESS}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def resolv_conf() -> str:
    """Name resolution of processes on the node."""
    return f"nameserver {NODE_ADDRESS}\noptions ndots:5\nsearch svc.{CLUSTER_DOMAIN} {CLUSTER_DOMAIN}\n"


def hosts() -> str:
    """The node's /etc/hosts."""
    return f"127.0.0.1 localhost\n{NODE_ADDRESS} {NODE_NAME}\n"


def _document(content: dict[str, object]) -> str:
    return json.dumps(content, indent=1) + "\n"
