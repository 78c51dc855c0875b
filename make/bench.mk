# Measurements. Each prints a table, writes build/bench/NAME.json, and says which goals it met.
.PHONY: bench-table
bench-table: venv ## process table in etcd: completions a second, catch-up, memory
	PYTHONPATH=tests:tests/kubernetes:bench .venv/bin/python -m autellix_bench.table $(ARGS)

# The peer that the gateway is compared with; in an environment of its own, since its requirements are not ours.
ROUTER := $(CACHE)/vllm-router-0.1.17
$(ROUTER)/bin/vllm-router: | $(UV)
	$(UV) venv --quiet --python '>=3.11,<3.14' --no-python-downloads --clear $(ROUTER)
	$(UV) pip install --quiet --python $(ROUTER)/bin/python vllm-router==0.1.17

.PHONY: bench-gateway
bench-gateway: venv $(ROUTER)/bin/vllm-router ## the gateway beside vllm-router and nginx (2 minutes; needs nginx and cc)
	PYTHONPATH=tests:tests/kubernetes:bench .venv/bin/python -m autellix_bench.gateway --router $(ROUTER)/bin/vllm-router $(ARGS)

.PHONY: bench-gateway-scaling
bench-gateway-scaling: venv $(ROUTER)/bin/vllm-router ## two processes of the gateway on one port beside one, and vllm-router (1 minute)
	PYTHONPATH=tests:tests/kubernetes:bench .venv/bin/python -m autellix_bench.gateway_scaling --router $(ROUTER)/bin/vllm-router $(ARGS)

# Programs with vLLM's CPU build in this process; one thread, so that CPU time is time.
VLLM_BENCH := OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 PYTHONPATH=tests:bench .venv/bin/python
.PHONY: bench-scheduler bench-engine
bench-scheduler: venv ## our scheduler beside vLLM's own: CPU time of steps, of the decision core, of records
	$(VLLM_BENCH) -m autellix_bench.scheduler $(ARGS)

bench-engine: venv ## agent programs on a real engine: stock order, fcfs, mlfq, plas, atlas
	$(VLLM_BENCH) -m autellix_bench.engine $(ARGS)

.PHONY: bench-routing
bench-routing: venv ## four replicas, eight engines: load of the worst engine over the mean, for each policy
	PYTHONPATH=tests:tests/kubernetes:bench .venv/bin/python -m autellix_bench.routing $(ARGS)

.PHONY: bench-swap
bench-swap: venv ## what the manager of swapped KV cache costs the scheduler, beside vLLM's own (1 minute)
	PYTHONPATH=bench .venv/bin/python -m autellix_bench.swap $(ARGS)

.PHONY: bench-swap-share
bench-swap-share: venv ## what programs that come back and preempted calls compute again, on a real engine (3 minutes)
	$(VLLM_BENCH) -m autellix_bench.swap_share $(ARGS)

.PHONY: bench-operator
bench-operator: venv ## 200 clusters on a real API server: work of the operator, writes and memory while nothing changes
	PYTHONPATH=tests:tests/kubernetes:bench .venv/bin/python -m autellix_bench.operator $(ARGS)
