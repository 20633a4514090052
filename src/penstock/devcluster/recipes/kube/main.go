// One binary for a Kubernetes control plane and its node agent, chosen by the name it is called under.
//
// Built by `penstock dev-cluster build` and linked under six names: one file of 140 MB instead of six, and one build
// that shares what the six have in common. Only the chosen command is made, because they share one set of feature gates
// and would disagree about it.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var commands = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kubectl":                 func() *cobra.Command { return kubectl.NewDefaultKubectlCommand() },
}

func main() {
	name := filepath.Base(os.Args[0])
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	command, known := commands[name]
	if !known {
		fmt.Fprintf(os.Stderr, "%s is none of its commands; call it by the name of one, as `penstock dev-cluster build` links it\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}
