// Command coredns is CoreDNS with the plugins that the lab's Corefile names and no others: the full set would bring
// the clients of several cloud providers along. A directive whose plugin is missing here stops the server at its start.
package main

import (
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

func main() {
	coremain.Run()
}
