# The chart. Its tests are part of `make test`.
.PHONY: chart-reference
chart-reference: venv ## write docs/reference/chart-values.md anew
	PYTHONPATH=tests:tests/kubernetes .venv/bin/python -m support.chart_reference
