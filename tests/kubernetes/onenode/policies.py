"""Which packets the program ``policies`` judges by NetworkPolicies: they go through a queue of the kernel. Pure.

The first packet of each connection from or to a pod waits in the queue for a verdict; what follows on that connection
is let through. While nobody reads the queue, its packets are dropped.
"""

from onenode.layout import POD_NETWORK

QUEUE = 100
#: Where the kernel lists the queues that are read, those of the reader's own network.
QUEUES = "/proc/net/netfilter/nfnetlink_queue"


def queue_rules() -> list[list[str]]:
    """The arguments of iptables, a rule each, in the order in which they have to be added.

    A packet that leaves towards a pod has the pod's own address as its target, since that of a Service was translated
    before, and still that of its sender as its source, since a node's address is put there only later (table ``nat``).
    """
    let_through = (
        "--match conntrack --ctstate ESTABLISHED,RELATED",
        "--match addrtype --src-type LOCAL",  # a node always reaches its pods: probes of the kubelet
        "--protocol icmp",  # policies speak of ports only
    )
    judged = (f"--source {POD_NETWORK}", f"--destination {POD_NETWORK}")
    rules = (
        *(f"{match} --jump ACCEPT" for match in let_through),
        *(f"{match} --jump NFQUEUE --queue-num {QUEUE}" for match in judged),
    )
    return [f"--table mangle --append POSTROUTING {rule}".split() for rule in rules]


def queue_is_read(queues: str) -> bool:
    """Whether some program reads the queue, by the text of ``QUEUES``."""
    return any(line.split()[0] == str(QUEUE) for line in queues.splitlines() if line.strip())
