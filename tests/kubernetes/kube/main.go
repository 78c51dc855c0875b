// Command kube is every program of a one-node cluster in one file: etcd, the API server, the controller manager, the
// scheduler, the kubelet, kube-proxy and kubectl. They share nearly all of their code, so one link takes the place of
// seven. The program is chosen by the name the file is called by (a symbolic link) or else by the first argument.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs holds what each name runs. The functions take the command line from os.Args.
var programs = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kubectl":                 runKubectl,
	"kube-apiserver":          func() { run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": runControllerManager,
	"kube-scheduler":          func() { run(scheduler.NewSchedulerCommand()) },
	"kube-proxy":              func() { run(proxy.NewProxyCommand()) },
	"kubelet":                 func() { run(kubelet.NewKubeletCommand(context.Background())) },
}

func main() {
	program, found := programs[filepath.Base(os.Args[0])]
	if !found && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		program, found = programs[os.Args[0]]
	}
	if !found {
		names := slices.Sorted(maps.Keys(programs))
		fmt.Fprintf(os.Stderr, "usage: kube {%s} [flags]\n", strings.Join(names, "|"))
		os.Exit(2)
	}
	program()
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}

func runControllerManager() {
	if slices.Contains(os.Args, "--enable-hostpath-provisioner=true") {
		if err := openProvisionedVolumes(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	run(controllermanager.NewControllerManagerCommand())
}

// runKubectl does what kubectl's own main does: its log level is set before its flags are parsed, and errors of
// commands print as kubectl prints them.
func runKubectl() {
	if _, err := logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)); err != nil {
		kubectlutil.CheckErr(err)
	}
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}
