# make run        set up what is missing and serve the dashboard on http://localhost:8501
#                 BREAKEVEN_HOST=0.0.0.0 make run serves others, too: docs/serving.md
# make test       set up what the tests need and run them
# make test-fast  under a minute, for every change: no torch, no process, no browser, no whole page
# make test-slow  real work that takes too long for every day; last result in docs/slow-tests.md
# make team-store  a team's store under faults, on a PostgreSQL server of the tests' own
# make cluster    a real Ray cluster of three nodes on this machine, one killed; docs/cluster.md
# make test-gpu   what only a CUDA device can show; needs neither DuckDB nor Streamlit
# make faults     breaks real processes at random moments, writes docs/reliability.md: an hour
# make histories  100,000 simulated histories of the supervisor: half an hour of two free cores
# make fuzz       values, deaths and orders of events drawn for BUDGET seconds (600)
# make parity-trials  100 seeded experiments of correct and broken backends: about an hour
# make lock, sbom, audit, licences   the packages: hashes, components, known holes; docs/threat-model.md
# make lint       formatting, lint and types
# make check      lint, then tests: what CI runs

PYTHON ?= python3
PORT ?= 8501
BIN := .venv/bin

.PHONY: lock sbom audit licences run test test-fast test-slow cluster team-store test-gpu faults histories fuzz parity-trials lint check machine chromium clean

run: .venv/installed
	@echo "Breakeven is on http://localhost:$(PORT)  (Ctrl-C ends it; trainings go on)"
	@BREAKEVEN_PORT=$(PORT) $(BIN)/python serve.py

# Whole files, which share what they set up; three at a time, because on two cores one often waits; four are slower.
test: .venv/installed-dev chromium
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder

test-fast: .venv/installed-dev
	$(BIN)/python -m pytest --fast --numprocesses 2 --dist loadfile

test-slow: .venv/installed-dev chromium
	$(BIN)/python -m pytest -m slow --durations=0

team-store: .venv/installed-dev
	$(BIN)/python -m pytest -m 'slow or not slow' --durations=0 tests/storage/team

cluster: .venv/installed-dev
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-cluster.txt
	$(BIN)/python -m pytest -m cluster --durations=0 -s tests/runner/cluster

# With whatever python there is: a GPU machine often comes with its own torch.
test-gpu:
	$(PYTHON) -m pytest tests/test_gpu.py

# Real processes, broken at random moments: TIMES of each, REAL of those with real training, JOBS at a
# time. What is in faults.jsonl already is not tried again.
TIMES ?= 20
REAL ?= 5
JOBS ?= 1
faults: .venv/installed-dev
	$(BIN)/python -m benchmarks.breaking --times $(TIMES) --real-times $(REAL) --jobs $(JOBS) --records faults.jsonl; \
	  $(BIN)/python -m benchmarks.breaking.table faults.jsonl --write docs/reliability.md

# The real supervisor, with clock, pipes and processes played by a seed; a failing one replays.
HISTORIES ?= 100000
histories: .venv/installed-dev
	$(BIN)/python -m benchmarks.simulation --histories $(HISTORIES) --write docs/reliability.md

BUDGET ?= 600
fuzz: .venv/installed-dev
	$(BIN)/python -m benchmarks.breaking.fuzz --budget $(BUDGET)

parity-trials: .venv/installed-dev
	$(BIN)/python -m benchmarks.parity_trials

lint: .venv/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint test

.venv/installed: requirements.txt pyproject.toml | machine
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

.venv/installed-dev: requirements-dev.txt requirements-team.txt .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

machine:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "Breakeven needs Python 3.11 to 3.13; $(PYTHON) is $$($(PYTHON) --version 2>&1 || echo missing)." \
	    "Install one and say: make PYTHON=python3.13"; exit 1; }
	@command -v c++ >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null || \
	  echo "No C++ compiler: the inductor backend cannot compile for the CPU." \
	    "Remedy: apt install g++ (Debian), dnf install gcc-c++ (Fedora), xcode-select --install (macOS)."

# The browser tests drive a real Chromium: the system's, or else one that Playwright brings. A test
# of the backup recipe needs rsync, those of the sign-in nginx and Apache's mod_auth_openidc; they are
# skipped without.
chromium: .venv/installed-dev
	@{ command -v rsync && command -v nginx && test -e /usr/lib/apache2/modules/mod_auth_openidc.so; } >/dev/null || \
	  ! command -v apt-get >/dev/null || [ "$$(id -u)" != 0 ] || \
	  { apt-get -qq update && apt-get -qq install -y rsync nginx-light apache2 libapache2-mod-auth-openidc; }
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	  command -v google-chrome >/dev/null || \
	  if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; \
	  then apt-get -qq update && apt-get -qq install -y chromium; \
	  else $(BIN)/playwright install chromium; fi

# What the packages are, whether they are known to be broken, and under which licences they come.
SUPPLY := .venv/supply/bin
lock: .venv/supply/installed
	{ head -2 requirements.lock; $(SUPPLY)/uv pip compile --universal --python-version 3.11 --generate-hashes \
	  --no-annotate --no-header -q requirements.txt requirements-team.txt; } > requirements.lock.new
	mv requirements.lock.new requirements.lock

sbom: .venv/supply/installed
	$(SUPPLY)/cyclonedx-py requirements requirements.lock --of JSON --output-reproducible -o sbom.cdx.json

# Asks PyPI what is known of each; --strict fails where it does not answer, instead of finding nothing.
audit: .venv/supply/installed
	$(SUPPLY)/pip-audit --strict --disable-pip --require-hashes -r requirements.lock

licences: .venv/supply/installed
	$(SUPPLY)/pip-licenses --python $(BIN)/python --order=license

.venv/supply/installed: requirements-supply.txt | machine
	@test -x $(SUPPLY)/python || $(PYTHON) -m venv .venv/supply
	$(SUPPLY)/pip install --quiet --disable-pip-version-check -r requirements-supply.txt
	@touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
