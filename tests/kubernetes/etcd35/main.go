// Command etcd35 is etcd 3.5, to run the tests of the process table on a version that is older than the cluster's.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
