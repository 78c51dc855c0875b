# Everything a newcomer needs. `make` lists the targets.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Bytecode must be written: without it a vLLM engine takes twice as long to start.
unexport PYTHONDONTWRITEBYTECODE

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/autellix
export PATH := $(CURDIR)/.venv/bin:$(PATH)
PYTHON ?= python3
PYTEST := .venv/bin/python -m pytest
SOURCES := wire operator controller engine_image/autellix_engine kernels bench tests

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

include make/python.mk
include make/kubernetes.mk
include make/kernels.mk
include make/bench.mk

.PHONY: test test-unit test-integration test-e2e
# All parts run, whichever fails, so that one run tells everything.
test: MEMORY_GIB := 14
test: machine compiler venv ## all tests: unit, integration, end to end
	@failed=; for part in unit integration e2e; do $(MAKE) --no-print-directory test-$$part || failed="$$failed test-$$part"; done; \
	[ -z "$$failed" ] || { echo "make: failed:$$failed" >&2; exit 1; }

test-unit: compiler venv helm ## fast tests, no services (under 2 minutes)
	$(PYTEST) tests/unit --numprocesses=auto --maxprocesses=4 --dist=worksteal $(ARGS)

# In two processes: each waits half of its time, and two engines are what the memory has room for.
test-integration: MEMORY_GIB := 12
test-integration: machine venv programs test-programs test-images ## real etcd, API server, vLLM
	$(PYTEST) tests/integration --verbose --numprocesses=2 --dist=loadfile --no-loadscope-reorder $(ARGS)

test-e2e: machine venv programs test-images ## real pods, traffic, faults on the throw-away Kubernetes
	$(PYTEST) tests/e2e --verbose --capture=no $(ARGS)

.PHONY: test-etcd-versions
test-etcd-versions: venv ## the process table on etcd 3.5 (built: a minute of CPU), or on AUTELLIX_ETCD=/path/to/etcd
	AUTELLIX_ETCD=$(or $(AUTELLIX_ETCD),$(shell $(ONENODE) build etcd35)) $(PYTEST) tests/integration/controller/table $(ARGS)

.PHONY: soak soak-table
soak: soak-table soak-gateway soak-swap soak-operator soak-e2e soak-demo ## all long runs of tests, outside of CI (an hour and a half)

soak-table: venv ## the process table under random faults and random steps (5 minutes)
	$(PYTEST) tests/soak/test_table_soak.py $(ARGS)

.PHONY: soak-gateway
soak-gateway: venv ## 10,000 aborted calls and 2,000 streams at once through the gateway (5 minutes)
	ulimit -n 20000; $(PYTEST) tests/soak/test_gateway_soak.py -s --timeout=900 $(ARGS)

.PHONY: soak-e2e
soak-e2e: machine venv programs test-images ## changes to a cluster under traffic, also those too long for CI, three times over (40 minutes; ROUNDS=3)
	AUTELLIX_SOAK_ROUNDS=$(or $(ROUNDS),3) $(PYTEST) tests/e2e/test_changes.py --capture=no $(ARGS)

.PHONY: soak-demo
soak-demo: machine venv programs test-images ## the demo as a test: what it shows is what it promises (3 minutes)
	AUTELLIX_SOAK_ROUNDS=1 $(PYTEST) tests/e2e/test_demo.py --capture=no $(ARGS)

.PHONY: demo demo-down
demo: machine demo-tools venv ## from nothing to agent traffic on a throw-away Kubernetes, stock order beside PLAS
	PYTHONPATH=tests:tests/kubernetes .venv/bin/python -m demo up

demo-down: python ## remove every trace of the demo
	PYTHONPATH=tests:tests/kubernetes $(PYTHON) -m demo down

.PHONY: reference
reference: venv ## write the reference pages that follow from the code: API schema, settings, AutellixCluster, chart values
	.venv/bin/python -m autellix_controller.reference docs/reference
	PYTHONPATH=tests:tests/kubernetes .venv/bin/python -m support.crd_reference
	PYTHONPATH=tests:tests/kubernetes .venv/bin/python -m support.chart_reference

.PHONY: clean
clean: ## remove what was built in this folder (the cache folder stays)
	rm -rf build dist .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
