# The throw-away Kubernetes, its programs and the images.
ONENODE := PYTHONPATH=tests/kubernetes $(PYTHON) -m onenode
# Where the helm of the cluster's version lies; asks only when used.
HELM = $(shell $(ONENODE) build helm)

# Before anything long: whether this machine can do it at all. An engine with the tiny model takes 3.3 GiB.
MEMORY_GIB := 2
demo: MEMORY_GIB := 9
test-e2e: MEMORY_GIB := 14
.PHONY: machine
machine: installable # root, Linux, memory, disk, tools
	@$(ONENODE) check --memory-gib $(MEMORY_GIB)

.PHONY: demo-tools
demo-tools: python # what the demo's last words tell people to type
	@[ -n "$${KUBE_CONTEXT:-}" ] || $(ONENODE) tools curl

.PHONY: compiler
compiler: python # for the unit tests of the kernels, which run the GPU's source on the CPU
	@$(ONENODE) tools g++

.PHONY: helm
helm: python # only helm, which `make lint` and the chart's unit tests need
	@$(ONENODE) build helm >/dev/null

# Before the tests that run on them, since no time limit of a test allows for compiling a Kubernetes.
.PHONY: programs
programs: python # Kubernetes, etcd, helm
	@$(ONENODE) build >/dev/null

.PHONY: test-programs
test-programs: programs # Prometheus' rule engine and etcd's tools, for tests of alerts and of the documentation
	@$(ONENODE) build rules etcdctl etcdutl >/dev/null

# Before the tests that run pods. A cluster of one's own pulls its images, and building them takes root.
.PHONY: test-images
test-images: programs # operator, controller, engine, etcd
	@[ -n "$${KUBE_CONTEXT:-}" ] || $(ONENODE) images >/dev/null

.PHONY: images
images: python ## build the images of operator, controller, engine, etcd (cached by their content)
	$(ONENODE) images

.PHONY: kubernetes-up kubernetes-down kubernetes-shell
kubernetes-up: python ## start a throw-away one-node Kubernetes with our images (root, Linux)
	$(ONENODE) up --image operator --image controller --image engine --image etcd

kubernetes-down: python ## end it and remove all it left
	$(ONENODE) down

kubernetes-shell: python ## a shell in its network: kubectl and helm work, names of Services resolve
	@$(ONENODE) shell $(if $(LAB),--lab $(LAB))

.PHONY: soak-operator
soak-operator: venv ## an idle operator for ten minutes: it writes nothing and does not grow
	AUTELLIX_IDLE_SECONDS=600 $(PYTEST) tests/integration/operator/test_process.py -k idle --timeout 900 $(ARGS)
