# Measurements. Each prints a table, writes build/bench/NAME.json, and says which goals it met.
.PHONY: bench-table
bench-table: venv ## process table in etcd: completions a second, catch-up, memory
	PYTHONPATH=tests:tests/kubernetes:bench .venv/bin/python -m autellix_bench.table $(ARGS)
