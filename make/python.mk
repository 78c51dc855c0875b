# The Python environment, the locks, and the checks.
UV_VERSION := 0.13.9
# uv from the machine if it has one, else our own in the cache folder.
UV := $(or $(shell command -v uv 2>/dev/null),$(CACHE)/uv-$(UV_VERSION)/bin/uv)

# Asked before anything else, in words that even Python 2 understands.
.PHONY: python
python:
	@command -v $(PYTHON) >/dev/null || { echo 'make: there is no $(PYTHON); install Python 3.11 to 3.13, or name one: make PYTHON=...' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
	  || { echo "make: $(PYTHON) is $$($(PYTHON) -V 2>&1); it takes Python 3.11 to 3.13: make PYTHON=..." >&2; exit 1; }

# Whether the environment can be made here, asked before anything long.
.PHONY: installable
installable: python
	@[ "$$(uname -sm)" = "Linux x86_64" ] || { echo "make: the locked environment is for Linux on x86_64, this is $$(uname -sm); use a machine of that kind, virtual or not" >&2; exit 1; }
	@[ -x "$(UV)" ] || $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo 'make: $(PYTHON) has no venv module; on Debian, as root: apt-get install python3-venv' >&2; exit 1; }

$(CACHE)/uv-$(UV_VERSION)/bin/uv: | installable
	@echo "installing uv $(UV_VERSION) into the cache folder"
	@mkdir -p $(CACHE) || { echo 'make: the cache folder cannot be written; name another: XDG_CACHE_HOME=... make' >&2; exit 1; }
	$(PYTHON) -m venv $(CACHE)/uv-$(UV_VERSION)
	$(CACHE)/uv-$(UV_VERSION)/bin/pip install --quiet uv==$(UV_VERSION)

.PHONY: venv
venv: .venv/.synced ## the Python environment in .venv, exactly as locked

# Bytecode is compiled here because engine pods mount this environment read-only.
.venv/.synced: pyproject.toml requirements.lock engine_image/vllm-cpu/pyproject.toml | installable $(UV)
	[ -x .venv/bin/python ] || $(UV) venv --quiet --python "$$(command -v $(PYTHON))" --no-python-downloads .venv
	@echo "installing the locked environment (3 GB the first time, a minute or two)"
	$(UV) pip sync --python .venv/bin/python --compile-bytecode requirements.lock
	$(UV) pip install --quiet --python .venv/bin/python --no-deps --editable .
	touch $@

EXPORT := export --quiet --no-emit-project --no-header --no-annotate
.PHONY: lock
lock: | $(UV) ## renew requirements.lock and the images' locks (hashed, without index addresses)
	$(UV) lock --quiet --upgrade
	$(UV) $(EXPORT) --all-extras --group dev -o requirements.lock
	$(UV) $(EXPORT) --no-dev --extra operator -o operator/requirements.lock
	$(UV) $(EXPORT) --no-dev --extra controller --extra tracing -o controller/requirements.lock
	$(UV) $(EXPORT) --only-group build -o requirements-build.lock
	@! grep -n '://' requirements.lock requirements-build.lock operator/requirements.lock controller/requirements.lock

# Asked for only when used: other targets need neither git nor a checkout.
SHELL_FILES = $(shell git ls-files '*.sh' .ci/run)
DOCKERFILES = $(shell git ls-files '*Dockerfile')

.PHONY: lint format
lint: venv helm ## formatting, types, imports, shell, Dockerfiles, YAML, spelling, chart
	@git rev-parse --is-inside-work-tree >/dev/null || { echo 'make: lint needs git, and a checkout that git works in; of "dubious ownership" in another user'"'"'s: git config --global --add safe.directory $(CURDIR)' >&2; exit 1; }
	ruff format --check $(SOURCES)
	ruff check $(SOURCES)
	mypy $(SOURCES)
	lint-imports
	shellcheck $(SHELL_FILES)
	hadolint $(DOCKERFILES)
	yamllint --strict .
	typos
	$(HELM) lint --strict charts/autellix

format: venv ## format the code and fix what can be fixed
	ruff format $(SOURCES)
	ruff check --fix $(SOURCES)
