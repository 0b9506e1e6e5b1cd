# Needs python3 (3.11 or newer, with pip and venv), make and git; the first target sets up the rest.
PYTHON ?= python3
ARGS ?=
FUZZ_SECONDS ?= 60
# Test processes; more than the cores, because many tests wait for processes. A file stays in one of them, so that the
# browser or server of its fixtures is started once.
JOBS ?= 3
BENCH_SIZE ?= 300MB
# The tests of the packages that coverage measures.
COVERED ?= $(addprefix tests/,types formats reading runtime sandbox session/recording cli/test_show.py tools/test_request_preview.py integrations/opentelemetry/test_content.py)
# Test material that is too large for this repository.
SHARED ?= ../shared

# Otherwise each process that a test starts compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
SETUP := .venv/.installed
RUNTIME := .venv/.installed-runtime
ARCHIVE := .scratch/bench-$(BENCH_SIZE)
TOTALS := $(if $(wildcard $(SHARED)/corpus/generate.py),$(ARCHIVE)/expected-totals.json)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
DIST_PIP := .scratch/dist/bin/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: run test coverage mutants check fix lint types contracts docs bench scale compatibility oracle explore soak fuzz dist lock clean help

run: $(RUNTIME)  ## set up what toolspan needs to run, then the main job: toolspan demo
	$(BIN)/toolspan demo $(ARGS)

test: $(SETUP)  ## set up, then the tests (ARGS goes to pytest; COVERAGE=1 also measures coverage)
	@command -v chromedriver >/dev/null || echo "No browser here: tests in Chromium are skipped (Debian: chromium chromium-driver)."
	$(if $(COVERAGE),$(MAKE) coverage)
	$(BIN)/pytest -m "not slow" -n $(JOBS) --dist loadfile --no-loadscope-reorder $(if $(COVERAGE),$(addprefix --ignore=,$(COVERED))) $(ARGS)

coverage: $(SETUP)  ## run the tests of five packages and measure branch coverage; fails below 90 % of a package
	rm -rf .scratch/coverage
	mkdir -p .scratch/coverage
	$(BIN)/coverage run -m pytest -m "not slow" -n $(JOBS) --dist loadfile --no-loadscope-reorder $(COVERED) $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage json --quiet -o - | $(BIN)/python scripts/coverage_table.py

mutants: $(SETUP)  ## plant faults in the runtime and check that its tests notice them (ARGS: --only queue --every 1)
	$(BIN)/python tests/runtime/mutants.py $(ARGS)

check: lint types contracts docs test  ## all checks: format, lint, types, contracts, generated pages, tests

fix: $(SETUP)  ## format, and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(SETUP)  ## ruff: format and rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(SETUP)  ## mypy --strict
	$(BIN)/mypy

contracts: $(SETUP)  ## check the import layers
	$(BIN)/lint-imports --no-cache

docs: $(SETUP)  ## check that the generated pages are current
	$(BIN)/python scripts/docs.py --check

bench: $(SETUP) $(TOTALS)  ## benchmarks as ratios (ARGS goes to benchmarks/read.py)
	$(BIN)/python benchmarks/read.py $(if $(TOTALS),--archive $(ARCHIVE)) $(ARGS)

scale: $(SETUP)  ## the slow tests of tables, then benchmarks/scale.py on 5 GB (ARGS: --size 1GB)
	$(BIN)/pytest tests/tables -m slow
	$(BIN)/python benchmarks/scale.py $(ARGS)

compatibility: $(SETUP)  ## measure a client and rewrite docs/compatibility.md (ARGS: --version 2.1.325 --seed 1000)
	SHARED="$(SHARED)" $(BIN)/python -m tests.explore --install --record $(ARGS)
	$(BIN)/python scripts/docs.py

oracle: $(SETUP)  ## check that the real client resumes what toolspan records
	SHARED="$(SHARED)" $(BIN)/python -m tests.oracle $(ARGS)

explore: $(SETUP)  ## compare with the real client on generated cases (ARGS: --seed 7 --permissions --min 0.97)
	SHARED="$(SHARED)" $(BIN)/python -m tests.explore $(ARGS)

soak: $(SETUP)  ## run the tests with many more generated examples, slow ones included
	HYPOTHESIS_PROFILE=soak $(BIN)/pytest $(ARGS)
	[ ! -d ../shared/conformance ] || for version in 2.1.325 2.1.197 2.1.80 2.0.65 seed; do \
	  $(BIN)/python ../shared/conformance/score.py run --cmd tests/sandbox/kit_exec.sh --cases ../shared/conformance/cases \
	    --version $$version --only '^(?!perm_mode)' --jobs 4 --min 0.95 || exit 1; \
	done

fuzz: .venv/.installed-fuzz  ## fuzz the readers for FUZZ_SECONDS
	mkdir -p .scratch/fuzz
	$(BIN)/python tests/fuzz/fuzz_read.py -max_total_time=$(FUZZ_SECONDS) $(ARGS) .scratch/fuzz

dist: $(SETUP)  ## build wheel and sdist, install each beside nothing but its dependencies and try it
	rm -rf dist .scratch/dist
	$(BIN)/python -m build --no-isolation --outdir dist . >/dev/null
	$(PYTHON) -m venv .scratch/dist
	$(DIST_PIP) install --no-compile --require-hashes -r requirements/runtime.txt -r requirements/build.txt
	for package in dist/*.whl dist/*.tar.gz; do \
	  $(DIST_PIP) install --force-reinstall --no-deps --no-build-isolation $$package && \
	  (cd .scratch && dist/bin/toolspan --version && dist/bin/toolspan demo >/dev/null && \
	  dist/bin/python -c "import toolspan; print(sum(1 for _ in toolspan.history(toolspan.sample.archive()).spans), 'calls')") || exit 1; \
	done

lock: .scratch/lock/bin/uv  ## lock dependency versions (ARGS=--upgrade for newer ones)
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["dev"], sep="\n")' > .scratch/group.in
	$(COMPILE) -o requirements/runtime.txt pyproject.toml >/dev/null
	$(COMPILE) -o requirements/dev.txt -c requirements/runtime.txt pyproject.toml requirements/dev.in .scratch/group.in >/dev/null
	printf 'editables\nhatchling\n' > .scratch/build.in
	$(COMPILE) -o requirements/build.txt -c requirements/dev.txt .scratch/build.in >/dev/null
	$(COMPILE) -o requirements/fuzz.txt requirements/fuzz.in >/dev/null

clean:  ## remove everything that make created, .venv included
	rm -rf .venv .scratch .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## list the targets
	@awk -F ':.*  ## ' '/^[a-z]+:.*  ## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# Versions and hashes only; each machine's pip knows where packages come from. One version of each package for every
# supported Python, down to the first patch level, and for every platform.
COMPILE = .scratch/lock/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --no-header --no-annotate $(ARGS)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "toolspan needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Name another with PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv

$(RUNTIME): requirements/runtime.txt requirements/build.txt pyproject.toml | $(BIN)/python
	@echo "Installing $$(grep -c == requirements/runtime.txt) packages into .venv …"
	$(PIP) install --require-hashes -r requirements/runtime.txt -r requirements/build.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -q src
	@touch $@

$(SETUP): requirements/dev.txt pyproject.toml | $(BIN)/python
	@echo "Installing $$(grep -c == requirements/dev.txt) packages into .venv …"
	$(PIP) install --require-hashes -r requirements/dev.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -q src
	@touch $@ $(RUNTIME)

.venv/.installed-fuzz: requirements/fuzz.txt $(SETUP)
	$(PIP) install --require-hashes -r requirements/fuzz.txt || { \
	echo "The fuzzer has no wheel for this Python; requirements/fuzz.in says where it has." >&2; exit 1; }
	@touch $@

.scratch/lock/bin/uv: | $(BIN)/python
	$(BIN)/python -m venv --clear .scratch/lock
	.scratch/lock/bin/python -m pip --disable-pip-version-check --quiet install "uv==0.13.8"

$(ARCHIVE)/expected-totals.json: | $(SETUP)
	$(BIN)/python $(SHARED)/corpus/generate.py --out $(ARCHIVE) --size $(BENCH_SIZE) --seed 7 --dialect claude
