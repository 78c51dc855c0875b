# The throw-away Kubernetes, its programs and the images.
ONENODE := PYTHONPATH=tests/kubernetes $(PYTHON) -m onenode
# Where the helm of the cluster's version lies; asks only when used.
HELM = $(shell $(ONENODE) build helm)

.PHONY: helm
helm: # only helm, which `make lint` needs
	@$(ONENODE) build helm >/dev/null
