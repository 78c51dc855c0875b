# The swap kernels. Their tests are part of `make test-unit`.
BUILD_SWAP := build/bench-swap

.PHONY: bench-swap-gpu bench-swap-dry
bench-swap-gpu: venv ## measure KV swapping on this machine's GPU (8 minutes; JSON and figure in build/bench-swap)
	PYTHONPATH=kernels:kernels/bench .venv/bin/python -m swapbench --out $(BUILD_SWAP) $(ARGS)

bench-swap-dry: venv ## the same script on the CPU, to see that it works (its times mean nothing)
	PYTHONPATH=kernels:kernels/bench .venv/bin/python -m swapbench --dry-run --out $(BUILD_SWAP)-dry $(ARGS)

.PHONY: soak-swap
soak-swap: venv ## 300 random preemptions of an engine that swaps, in six cases (6 minutes; PREEMPTIONS=300)
	AUTELLIX_SOAK_PREEMPTIONS=$(or $(PREEMPTIONS),300) $(PYTEST) tests/soak/test_swap_soak.py --verbose $(ARGS)
