# Needs python3 (3.11 or newer, with pip and venv), make and git; the first target sets up the rest.
PYTHON ?= python3
ARGS ?=
FUZZ_SECONDS ?= 60
# Test processes; more than the cores, because many tests wait for processes. A file stays in one of them, so that the
# browser or server of its fixtures is started once.
JOBS ?= 3
BENCH_SIZE ?= 300MB
# The tests of the packages that coverage measures.
COVERED ?= $(addprefix tests/,types formats reading archive analysis runtime sandbox stores session/recording export/test_convert.py cli/test_show.py tools/test_request_preview.py integrations/opentelemetry/test_content.py)

# Otherwise each process that a test starts compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

# The tests of `make test-quick`, without those of files that take long.
QUICK ?= $(addprefix tests/,types shell diffs formats reading analysis archive runtime)

BIN := .venv/bin
RUNTIME := .venv/.installed-runtime
TESTS := .venv/.installed-tests
SETUP := .venv/.installed
-include lab/Makefile

SCRIPTS := src/toolspan/web/static
ARCHIVE := .scratch/bench-$(BENCH_SIZE)
TOTALS := $(if $(wildcard $(SHARED)/corpus/generate.py),$(ARCHIVE)/expected-totals.json)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
PYTEST = $(BIN)/pytest -p tests.progress --inline-snapshot=disable -m "not slow" -n $(JOBS) --dist loadfile --no-loadscope-reorder

.PHONY: run test test-quick test-all coverage mutants check fix lint types contracts docs bench scale soak fuzz dist site lock clean help

run: $(RUNTIME)  ## set up what toolspan needs to run, then the main job: toolspan demo
	$(BIN)/toolspan demo $(ARGS)

test: $(TESTS) missing-programs  ## set up, then the tests; those of large optional packages are skipped (ARGS goes to pytest)
	$(PYTEST) $(ARGS)

test-quick: $(TESTS)  ## the quick tests of reading and running; they need neither browser nor sandbox
	$(PYTEST) --file-seconds 1.5 $(QUICK) $(ARGS)

test-all: $(SETUP) missing-programs  ## set up with every optional package, then all tests (COVERAGE=1 also measures coverage)
	$(if $(COVERAGE),$(MAKE) coverage)
	$(PYTEST) $(if $(COVERAGE),$(addprefix --ignore=,$(COVERED))) $(ARGS)

missing-programs:
	@command -v chromedriver >/dev/null || echo "No browser here: tests in Chromium are skipped (Debian: chromium chromium-driver)."
	@command -v redis-server >/dev/null || echo "No Redis here: tests of this store are skipped (Debian: redis-server)."
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || \
	echo "No PostgreSQL here: tests of this store are skipped (Debian: postgresql)."
	@command -v bwrap >/dev/null || echo "No bubblewrap here: tests of the sandbox are skipped (Debian: bubblewrap)."

coverage: $(SETUP)  ## run the tests of five packages and measure branch coverage; fails below 90 % of a package
	rm -rf .scratch/coverage
	mkdir -p .scratch/coverage
	$(BIN)/coverage run -m $(PYTEST:$(BIN)/%=%) $(COVERED) $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage json --quiet -o - | $(BIN)/python scripts/coverage_table.py

mutants: $(SETUP)  ## plant faults in the runtime and check that its tests notice them (ARGS: --only queue --every 1)
	$(BIN)/python tests/runtime/mutants.py $(ARGS)

check: lint types contracts docs test-all  ## all checks: format, lint, types, contracts, generated pages, tests

fix: $(SETUP)  ## format Python and JavaScript, and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/oxfmt $(SCRIPTS)

lint: $(SETUP)  ## format and rules of Python (ruff) and of the page's JavaScript (oxfmt, oxlint)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/oxfmt --check $(SCRIPTS)
	$(BIN)/oxlint --deny-warnings $(SCRIPTS)

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

soak: $(SETUP)  ## run the tests with many more generated examples, slow ones included
	HYPOTHESIS_PROFILE=soak $(BIN)/pytest $(ARGS)

fuzz: .venv/.installed-fuzz  ## fuzz the readers for FUZZ_SECONDS
	mkdir -p .scratch/fuzz
	$(BIN)/python tests/fuzz/fuzz_read.py -max_total_time=$(FUZZ_SECONDS) $(ARGS) .scratch/fuzz

dist: $(SETUP)  ## build wheel and sdist twice, check them, try each with its extras; bill of materials and licences
	$(BIN)/python scripts/release.py --python $(PYTHON) $(ARGS)

site: .scratch/site/.installed  ## build the documentation as a site in .scratch/site/html, and check its links
	.scratch/site/env/bin/python scripts/build_site.py $(ARGS)

lock: .scratch/lock/bin/uv  ## lock dependency versions (ARGS=--upgrade for newer ones)
	printf 'editables\nhatchling\n' > .scratch/build.in
	$(COMPILE) -o requirements/runtime.txt --extra run pyproject.toml >/dev/null
	$(COMPILE) -o requirements/test.txt -c requirements/runtime.txt --extra run --group test pyproject.toml .scratch/build.in >/dev/null
	$(COMPILE) -o requirements/dev.txt -c requirements/test.txt --extra run --group dev pyproject.toml requirements/dev.in >/dev/null
	$(COMPILE) -o requirements/build.txt -c requirements/dev.txt .scratch/build.in >/dev/null
	$(COMPILE) -o requirements/fuzz.txt requirements/fuzz.in >/dev/null
	$(COMPILE) -o requirements/site.txt requirements/site.in >/dev/null

clean:  ## remove everything that make created, .venv included
	rm -rf .venv .scratch .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	find src tests lab benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## list the targets
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Versions and hashes only; each machine's pip knows where packages come from. One version of each package for every
# supported Python, down to the first patch level, and for every platform.
COMPILE = .scratch/lock/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --no-header --no-annotate $(ARGS)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "toolspan needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Name another with PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv

# requirements files, then the marks of the installations that are part of this one
define INSTALL
	@echo "Installing $$(grep -c == $<) packages into .venv ..."
	$(PIP) install --require-hashes $(addprefix -r ,$(1))
	$(PIP) install --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -q src
	@touch $@ $(2)
endef

$(RUNTIME): requirements/runtime.txt requirements/build.txt pyproject.toml | $(BIN)/python
	$(call INSTALL,requirements/runtime.txt requirements/build.txt)

$(TESTS): requirements/test.txt pyproject.toml | $(BIN)/python
	$(call INSTALL,requirements/test.txt,$(RUNTIME))

$(SETUP): requirements/dev.txt pyproject.toml | $(BIN)/python
	$(call INSTALL,requirements/dev.txt,$(RUNTIME) $(TESTS))

.venv/.installed-fuzz: requirements/fuzz.txt $(SETUP)
	$(PIP) install --require-hashes -r requirements/fuzz.txt || { \
	echo "The fuzzer has no wheel for this Python; requirements/fuzz.in says where it has." >&2; exit 1; }
	@touch $@

.scratch/site/.installed: requirements/site.txt | $(BIN)/python
	$(BIN)/python -m venv --clear .scratch/site/env
	.scratch/site/env/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r $<
	@touch $@

.scratch/lock/bin/uv: | $(BIN)/python
	$(BIN)/python -m venv --clear .scratch/lock
	.scratch/lock/bin/python -m pip --disable-pip-version-check --quiet install "uv==0.13.8"

$(ARCHIVE)/expected-totals.json: | $(SETUP)
	$(BIN)/python $(SHARED)/corpus/generate.py --out $(ARCHIVE) --size $(BENCH_SIZE) --seed 7 --dialect claude
