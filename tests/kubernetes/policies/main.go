// Command policies enforces NetworkPolicies on the one node of a lab. It is kube-network-policies of the Kubernetes
// project, which judges the first packet of each connection; its own main only runs as a pod.
//
// Packets come from a queue of the kernel. The library also makes rules of nf_tables that fill the queue. The lab has
// rules of its own for that, because many kernels are built without that statement of nf_tables: there the library's
// rules are refused as a whole, with an error in the log, and nothing else depends on them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the kubeconfig of a user who may watch pods, namespaces and NetworkPolicies")
	node := flag.String("hostname-override", "", "the name of the node")
	queue := flag.Int("nfqueue-id", 0, "the number of the queue that holds the packets to judge")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, networkpolicy.Config{NodeName: *node, QueueID: *queue}); err != nil {
		fmt.Fprintln(os.Stderr, "policies:", err)
		os.Exit(1)
	}
}

// run judges packets until the context ends. Without it packets of new connections are dropped, not let through.
func run(ctx context.Context, kubeconfig string, config networkpolicy.Config) error {
	access, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return err
	}
	known := informers.NewSharedInformerFactory(client, 0)
	policies, core := known.Networking().V1().NetworkPolicies(), known.Core().V1()
	controller, err := networkpolicy.NewController(
		client, policies, core.Namespaces(), core.Pods(), nil, nil, nil, nil, config,
	)
	if err != nil {
		return err
	}
	known.Start(ctx.Done())
	return controller.Run(ctx)
}
