# make run        set up what is missing and serve the dashboard on http://localhost:8501
#                 BREAKEVEN_HOST=0.0.0.0 make run serves others, too: docs/operating.md
# make test       set up what the tests need and run them
# make test-fast  under a minute, for every change: no torch, no process, no browser, no whole page
# make test-slow  real work that takes too long for every day (MARK=slow), or a real cluster
#                 (MARK=cluster); WHAT names files: CONTRIBUTING.md has all slow suites
# make test-gpu   what only a CUDA device can show; needs neither DuckDB nor Streamlit
# make lint       formatting, lint and types
# make check      lint, then tests: what CI runs
# make lock       the packages: hashes, components, known holes, licences; docs/promises.md
# make clean      remove what was set up

PYTHON ?= python3
PORT ?= 8501
BIN := .venv/bin
# The packages unpacked, and what pip keeps of the download.
DISK_GB := 10
# Twice quiet: pip says its errors, but not what an index warns of.
PIP := pip install --quiet --quiet --disable-pip-version-check

.PHONY: run test test-fast test-slow test-gpu lint check lock clean

run: .venv/installed
	@BREAKEVEN_PORT=$(PORT) $(BIN)/python serve.py

# Whole files, which share what they set up; three at a time, because on two cores one often waits; four are slower.
# Tests of processes and browsers that failed run once more by themselves: tests/again.py.
test: .venv/installed-dev
	$(BIN)/python -m tests.again --numprocesses 3 --dist loadfile --no-loadscope-reorder

test-fast: .venv/installed-dev
	$(BIN)/python -m pytest --fast --numprocesses 2 --dist loadfile

MARK ?= slow
test-slow: .venv/installed-dev
	@[ "$(MARK)" != cluster ] || $(BIN)/$(PIP) -r requirements-cluster.txt
	$(BIN)/python -m pytest -m '$(MARK)' --durations=0 $(WHAT)

# With whatever python there is: a GPU machine often comes with its own torch.
test-gpu:
	$(PYTHON) -m pytest tests/test_gpu.py

lint: .venv/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint test

.venv/installed: requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' || \
	  { echo "Breakeven needs Python 3.11 to 3.14; $(PYTHON) is $$($(PYTHON) --version 2>&1 || echo missing)." \
	    "Install one and say: make PYTHON=python3.13"; exit 1; }
	@command -v c++ >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null || \
	  echo "No C++ compiler: the inductor backend cannot compile for the CPU." \
	    "Remedy: apt install g++ (Debian), dnf install gcc-c++ (Fedora), xcode-select --install (macOS)."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installs Breakeven's packages into .venv: about 3 GB to download on Linux, most of it torch with CUDA's" \
	  "libraries, once; a GPU needs NVIDIA's driver 580 or later." && \
	  free=$$(df -Pk .venv | awk 'NR == 2 { print int($$4 / 1048576) }') && \
	  if [ "$$free" -lt $(DISK_GB) ]; then echo "It needs about $(DISK_GB) GB of disk; $$free GB are free here."; fi
	@echo "1 of 2: torch (minutes) ..."
	@$(BIN)/$(PIP) $$(grep '^torch==' requirements.txt)
	@echo "2 of 2: all other packages ..."
	@$(BIN)/$(PIP) -r requirements.txt
	@$(BIN)/$(PIP) --no-deps --editable .
	@touch $@

# The browser tests drive a real Chromium: the system's, or else one that Playwright brings. A test
# of the backup recipe needs rsync; it is skipped without.
.venv/installed-dev: requirements-dev.txt requirements-team.txt .venv/installed
	$(BIN)/$(PIP) -r requirements-dev.txt
	@command -v rsync >/dev/null || ! command -v apt-get >/dev/null || [ "$$(id -u)" != 0 ] || \
	  { apt-get -qq update && apt-get -qq install -y rsync; }
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	  command -v google-chrome >/dev/null || \
	  if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; \
	  then apt-get -qq update && apt-get -qq install -y chromium; \
	  else $(BIN)/playwright install chromium; fi
	@touch $@

# What the packages are, whether PyPI knows of holes in them (--strict fails where it does not answer,
# instead of finding nothing), and under which licences they come.
SUPPLY := .venv/supply/bin
lock: requirements-supply.txt .venv/installed
	@test -x $(SUPPLY)/python || $(PYTHON) -m venv .venv/supply
	$(SUPPLY)/$(PIP) -r requirements-supply.txt
	{ head -2 requirements.lock; $(SUPPLY)/uv pip compile --universal --python-version 3.11 --generate-hashes \
	  --no-annotate --no-header -q requirements.txt requirements-team.txt; } > requirements.lock.new
	mv requirements.lock.new requirements.lock
	$(SUPPLY)/cyclonedx-py requirements requirements.lock --of JSON --output-reproducible -o sbom.cdx.json
	$(SUPPLY)/pip-licenses --python $(BIN)/python --order=license
	$(SUPPLY)/pip-audit --strict --disable-pip --require-hashes -r requirements.lock

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
