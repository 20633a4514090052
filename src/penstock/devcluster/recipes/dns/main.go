// CoreDNS with the plugins that a cluster's DNS server needs, and no others: names of Services and their pods.
//
// Built by `penstock dev-cluster build`. The whole CoreDNS links the clients of several clouds and takes much longer.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"

	"github.com/coredns/coredns/coremain"
)

func init() {
	dnsserver.Directives = []string{"bind", "errors", "kubernetes"}
}

func main() {
	coremain.Run()
}
