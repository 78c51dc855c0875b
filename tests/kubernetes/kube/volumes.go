package main

import (
	"fmt"
	"os"

	"github.com/fsnotify/fsnotify"
)

// provisionedVolumes is where the controller manager's host path provisioner makes the folders of dynamic volumes.
const provisionedVolumes = "/tmp/hostpath_pv"

// openProvisionedVolumes lets every user write to volumes as soon as they are made. The provisioner makes them for
// root alone, and host paths take no notice of a pod's fsGroup, so without this no pod that runs as an ordinary user
// could use a claim, as it can with the storage drivers of real clusters.
func openProvisionedVolumes() error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching %s: %w", provisionedVolumes, err)
	}
	if err := watcher.Add(provisionedVolumes); err != nil {
		return fmt.Errorf("watching %s: %w", provisionedVolumes, err)
	}
	go func() {
		for {
			select {
			case event := <-watcher.Events:
				if event.Has(fsnotify.Create) {
					report(os.Chmod(event.Name, 0o777))
				}
			case err := <-watcher.Errors:
				report(err)
			}
		}
	}()
	return nil
}

func report(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "volumes:", err)
	}
}
