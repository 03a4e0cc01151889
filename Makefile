# Every target does all of its own set-up: a machine with python3 and pip is enough.
#
#   make demo          gather text, plant faults, curate it under 512 MB, show that the ledger found them; needs the core only.
#                      SIZE=300MB for a larger one
#   make test          the default test suite
#   make test-failed   once more, one by one, what failed in the last `make test`
#   make lint          ruff (check and format), mypy, import contracts (.importlinter)
#   make torture       the slow tests, part after part; each ends after 40 minutes at most, and can be run alone:
#                      torture-simulation (SEEDS=100000), torture-cluster, -stores, -passes, -kills, -budgets, -memory, -models, -formats, -rest
#   make torture-kills-long  KILLS=1000 random kills over all kinds of jobs, in at most MINUTES=90
#   make bench-engine  memory and throughput figures of the engine
#   make bench-text    filters against their peers
#   make bench-tokens  token ids beside the libraries tokenizers and tiktoken
#   make bench-dedup   deduplication: quality, speed, memory, against its peers
#   make bench-substring repeated passages: beside a suffix array, memory, scratch (FULL=1: 10 GB, too)
#   make bench-curate  a whole curation beside its steps as commands of their own
#   make bench-choose  quantiles of 100 million scores, decontamination beside filters and datatrove's, kills
#   make bench-observe what monitoring and the dashboard cost
#   make bench-gpu     models and deduplication on a GPU, beside plain transformers (needs a CUDA device; CORPUS=folder of JSONL)
#   make bench-video    cutting, cuts and motion in times real time; peak with 4K and with 30 minutes
#   make bench-images  reading, decoding and scaling images beside simplejpeg; peak with large ones
#   make bench-models  classifiers on the CPU, beside plain transformers
#   make bench-plan    how often what `tamis plan` says of peak and time holds
#   make bench-langid  speed of language id, and agreement with the fastText library
#   make bench-budget  peaks of every kind of job under three budgets, seen from outside
#   make bench-cluster executors on a Ray cluster of one node: throughput, start, memory, 20 kills
#   make bench-stores  1 GB out of an S3 server on loopback, beside boto3's own parallel reads
#   make bench-web     WARC to text beside a bare loop, peaks, kills, hostile files, URL rules beside datatrove's
#   make bench-start   what installing and starting take
#   make golden        outputs and speed of this tree beside those of an earlier commit (BASE=rev, PAIRS=n)
#   make codebase      figures about the source tree
#   make docs          the documentation site in build/docs, links checked, warnings are errors (.venv-docs)
#   make first-minutes docs/start.md from `pip install .` on, in an environment of its own (five minutes)
#   make screenshots   the pictures of docs/images, from real runs (needs chromium)
#   make wheel         a wheel with kernels for all CPU levels, the same bytes each time (in dist/)
#   make release       sdist and wheel (in dist/), installed and run in a bare environment, with limits on both
#   make core          only the environment (.venv) of the package itself
#   make venv          the same with everything that tests and linters need
#   make clean         remove what these targets made (also .venv)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
STAMP := $(VENV)/.ready
# One process more than two cores have: a third of the time a test waits, for a process that it killed or a clock. More would only compete with the
# processes that the suite itself starts.
PYTEST_ARGS ?= -n 3 --dist loadfile
BOUNDED := $(BIN)/python tests/support/bounded.py

# Bytecode is kept, whatever the shell says: the suite starts some thousand processes, and each would compile every module that it imports again.
# That was 40 % of the time of a small run.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
export PIP_ROOT_USER_ACTION := ignore

.DEFAULT_GOAL := test
.PHONY: docs first-minutes screenshots core venv demo test test-failed lint format golden codebase wheel release clean
.PHONY: torture torture-simulation torture-kills-long
.PHONY: bench-budget
.PHONY: bench-choose
.PHONY: bench-cluster
.PHONY: bench-curate
.PHONY: bench-dedup
.PHONY: bench-engine
.PHONY: bench-gpu
.PHONY: bench-images
.PHONY: bench-langid
.PHONY: bench-models
.PHONY: bench-observe
.PHONY: bench-plan
.PHONY: bench-start
.PHONY: bench-stores
.PHONY: bench-substring
.PHONY: bench-text
.PHONY: bench-tokens
.PHONY: bench-video
.PHONY: bench-web

core: $(CORE)
venv: $(STAMP)

# Kernels are compiled by numba of this environment, not of another one that pip makes for the build: that shows how far
# it is, and numba is needed here for kernels that are edited. Where ensurepip is missing (Debian without python3-venv)
# the outer pip installs into the bare environment. Modules are compiled to bytecode when they are first imported.
$(CORE): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || $(PYTHON) -m venv --without-pip --clear $(VENV)
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m pip --python $(BIN)/python install -q pip
	@echo "installing tamis into $(VENV)"
	@TAMIS_BUILD_LEVELS=none $(BIN)/python -m pip install -qq --no-compile -e ".[compile]" \
		$$({ command -v cc || command -v gcc || command -v clang || command -v ld || command -v ld.lld; } >/dev/null || echo ziglang)
	@$(BIN)/python -m tamis.kernels.compile --built --jobs $$(nproc)
	@touch $@

$(STAMP): $(CORE) requirements-dev.txt
	@echo "installing the test tools into $(VENV)"
	@$(BIN)/python -m pip install -qq --no-compile -r requirements-dev.txt
	@touch $@

demo: $(CORE)
	@$(BIN)/tamis demo $(if $(SIZE),--size $(SIZE) --output demo-output-$(SIZE))

# Bounded: it ends whatever a test does, and nothing that a test started outlives it. Which tests failed is kept only
# when all of them ran (exit code 1).
test: $(STAMP)
	@$(BOUNDED) --minutes 40 $(BIN)/python -m pytest $(PYTEST_ARGS) || { code=$$?; test $$code -eq 1 || rm -f .pytest_cache/v/cache/lastfailed; exit $$code; }

test-failed: $(STAMP)
	@$(BOUNDED) --minutes 20 $(BIN)/python -m pytest --last-failed --last-failed-no-failures none

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache --no-logo
	@$(BIN)/codespell src docs tests tools benchmarks examples *.md *.py

format: $(STAMP)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench-engine: $(STAMP)
	@$(BIN)/python benchmarks/engine.py

bench-text: $(STAMP)
	@$(BIN)/python benchmarks/text.py

bench-tokens: $(STAMP)
	@$(BIN)/python benchmarks/tokens.py

bench-dedup: $(STAMP)
	@$(BIN)/python benchmarks/dedup.py

bench-substring: $(STAMP)
	@$(BIN)/python benchmarks/substring.py $(if $(FULL),--full)

bench-curate: $(STAMP)
	@$(BIN)/python benchmarks/curate.py

bench-choose: $(STAMP)
	@$(BIN)/python benchmarks/choose.py

bench-observe: $(STAMP)
	@$(BIN)/python benchmarks/observe.py

bench-gpu: $(STAMP)
	@$(BIN)/python -m pip install -qq -e '.[models,gpu]'
	@$(BIN)/python benchmarks/gpu.py --out bench-data/gpu $(if $(CORPUS),--corpus $(CORPUS)) || echo "not all of it was reached"
	@$(BIN)/python benchmarks/gpu.py --out bench-data/gpu --page

bench-start: $(STAMP)
	@$(BIN)/python benchmarks/start.py

bench-stores: $(STAMP)
	@$(BIN)/python benchmarks/stores.py --write

bench-web: $(STAMP)
	@$(BIN)/python benchmarks/web.py --write

bench-budget: $(STAMP)
	@$(BIN)/python benchmarks/budget.py

bench-cluster: $(STAMP)
	@$(BIN)/python benchmarks/cluster.py --kills 20 --peers

bench-plan: $(STAMP)
	@$(BIN)/python benchmarks/plan.py

bench-models: $(STAMP)
	@$(BIN)/python benchmarks/models.py --write

bench-video: $(STAMP)
	@$(BIN)/python benchmarks/video.py

bench-images: $(STAMP)
	@$(BIN)/python benchmarks/images.py

bench-langid: $(STAMP)
	@$(BIN)/python benchmarks/langid.py --write

golden: $(STAMP)
	@$(BIN)/python tools/golden.py --base $(or $(BASE),HEAD) --pairs $(or $(PAIRS),0)

codebase: $(STAMP)
	@$(BIN)/python tools/codebase.py

# An environment of its own: Sphinx needs nothing of Tamis.
.venv-docs/.ready: requirements-docs.txt
	@test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	@.venv-docs/bin/python -m pip install -qq -r requirements-docs.txt
	@touch $@

docs: .venv-docs/.ready
	@.venv-docs/bin/python -m sphinx -q -W --keep-going -b html docs build/docs
	@echo "build/docs/index.html"

first-minutes: $(STAMP)
	@$(BOUNDED) --minutes 25 $(BIN)/python -m pytest -m slow tests/install/test_first_minutes.py

screenshots: $(STAMP)
	@$(BIN)/python tools/screenshots.py

# Nothing is left of an earlier build: a wheel must follow from the sources alone.
wheel:
	@rm -rf build/kernels
	@TAMIS_BUILD_LEVELS=all TAMIS_BUILD_PLATFORM=manylinux_2_17_$$(uname -m) $(PYTHON) -m pip wheel -q --no-deps -w dist .
	@ls -l dist/*.whl

.venv-release/.ready:
	@test -x .venv-release/bin/python || $(PYTHON) -m venv .venv-release
	@.venv-release/bin/python -m pip install -qq 'build>=1.2,<2'
	@touch $@

release: .venv-release/.ready
	@.venv-release/bin/python tools/release.py

# As tests/support/torture_parts.py has them.
TORTURE_PARTS := cluster stores passes kills budgets memory models formats rest
SEEDS ?= 100000
KILLS ?= 1000
MINUTES ?= 90

# All parts, whatever becomes of one.
torture: $(STAMP)
	@failed=; for part in simulation $(TORTURE_PARTS); do \
		echo "== torture-$$part"; $(MAKE) --no-print-directory torture-$$part || failed="$$failed torture-$$part"; \
	done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

# One process: these tests kill processes and fill disks, and measure what is left.
$(addprefix torture-,$(TORTURE_PARTS)): torture-%: $(STAMP)
	@$(BOUNDED) --minutes 40 $(BIN)/python -m pytest -m slow --part $*

# Two processes: nothing here measures.
torture-simulation: $(STAMP)
	@$(BOUNDED) --minutes 40 $(BIN)/python -m tests.engine.many_seeds --seeds $(SEEDS) --processes 2 --minutes 38

torture-kills-long: $(STAMP)
	@$(BOUNDED) --minutes $$(($(MINUTES) + 10)) $(BIN)/python -m tests.faults.random_kills --kills $(KILLS) --minutes $(MINUTES)

clean:
	rm -rf $(VENV) .venv-docs .venv-release src/tamis/kernels/built build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis demo-output demo-output-* bench-data
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
