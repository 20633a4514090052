# Everything lives in .venv; a run that finds it up to date touches no network.
# Another interpreter: make demo PYTHON=python3.12    One worker: make test WORKERS=0

PYTHON ?= python3
WORKERS ?= auto
BIN := .venv/bin
LOWEST := aks demo eks gke gpu kubernetes policy postgres
CODE := hatch_build.py src tests $(wildcard bench)
# Not -q: it hides the seed of the tests' order, which is needed to see a failure again (--randomly-seed=N).
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) $(if $(SEED),--randomly-seed=$(SEED))

# The lock names all that is needed, so nothing is left for pip to choose.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --compile --no-deps
LOCK = build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command "make lock" $(if $(NEWEST),--upgrade)

# Without bytecode every import compiles again, and `penstock --help` takes twice as long.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo test check test-bare test-lowest image lint lock venv wheel bench-engine bench-hostile bench-journal bench-kube bench-live bench-placement bench-policy conformance docs explore kube demo-clouds demo-kube e2e-kube clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-16s %s\n", $$1, $$2}' Makefile

install: .venv/.installed-run  ## Penstock into .venv with the packages for clusters, clouds, policies and PostgreSQL, as its image has them

demo: .venv/.installed  ## ten small trainings on this machine, under a real control plane; KEEP=1 leaves it running
	@$(BIN)/penstock demo $(if $(KEEP),--keep)

# With PENSTOCK_REQUIRE_ALL=1 no test may be skipped, and some want Kubernetes: built once, then found in the cache.
# Pytest's exit code 1: all tests ran, and some failed.
test: lint $(if $(filter 1,$(PENSTOCK_REQUIRE_ALL)),kube)  ## format, lint, types and all tests; AGAIN=1 as CI does: what failed is tried again, alone; EVERY=1 all of the tests that take turns
	@$(PYTEST) --durations 10 $(if $(EVERY),--every) $(if $(PASSED),--not-again=$(PASSED)) || { code=$$?; [ "$(AGAIN)" = 1 ] && [ $$code = 1 ] && $(BIN)/python -m tests.again; }

check: lint  ## the same without the slow tests
	@$(PYTEST) -m "not slow"

test-bare:  ## demo and quick tests in a fresh copy that sees git, make and Python only; SLOW=1 for all tests
	@$(PYTHON) -m tests.bare -n $(WORKERS) $(if $(SLOW),--slow) $(if $(AGAIN),--again) $(if $(PASSED),--passed=$(PASSED)) $(if $(SEED),--seed $(SEED))

# The tools are the lock's; what the package itself asks for is the oldest that it says will do.
# tests/test_packaging.py compares with the lock what is installed.
test-lowest: .venv/.installed-dev  ## the quick tests with the oldest packages that pyproject.toml allows
	@$(PYTHON) -m venv --clear build/lowest
	@build/lowest/bin/python -m pip install --quiet --disable-pip-version-check uv
	@build/lowest/bin/uv pip compile --quiet --resolution lowest-direct --python-version 3.11 --no-annotate --no-header \
	  $(LOWEST:%=--extra %) --output-file build/lowest/runtime.txt pyproject.toml
	@build/lowest/bin/uv pip install --quiet --python build/lowest --no-deps --requirement requirements/dev.txt
	@build/lowest/bin/uv pip install --quiet --python build/lowest --no-deps --requirement build/lowest/runtime.txt
	@build/lowest/bin/uv pip install --quiet --python build/lowest --no-deps --no-build-isolation --editable .
	@build/lowest/bin/python -m pytest -n $(WORKERS) -m "not slow" --ignore tests/test_packaging.py

wheel: .venv/.installed-dev  ## dist/*.whl with the engine compiled, two to three times as fast; needs gcc
	@PENSTOCK_COMPILE=1 $(BIN)/python -m hatchling build --target wheel --directory dist

image: .venv/.installed-dev  ## build/penstock-image.tar: the control plane's image as an OCI archive, without a registry; as root after `make kube`
	@$(BIN)/python -m hatchling build --target wheel --directory build/image
	@$(BIN)/python -m penstock.devcluster.penstock_image build/image build/penstock-image.tar

bench-engine: .venv/.installed-dev  ## how many jobs a second the engine decides; COMPILED=1 as the wheel has it
	@$(BIN)/python -m bench.engine $(if $(COMPILED),--compiled)

bench-hostile: .venv/.installed-dev  ## what hostile clients cost everybody else: answers, memory, connections; FAST=1 for a quick look
	@$(BIN)/python -m bench.hostile $(if $(FAST),--quick)

bench-journal: .venv/.installed-dev  ## how fast a journal is written, listed and started from
	@$(BIN)/python -m bench.journal

bench-kube: kube .venv/.installed-dev  ## ten thousand Jobs on three clusters: rate, waits, idle load, memory; FAST=1 for a quick look
	@$(BIN)/python -m bench.kube $(if $(FAST),--fast)

bench-live: .venv/.installed-dev  ## a running Penstock under load: submits, lists, decisions, plans, restarts; FAST=1 for a quick look
	@$(BIN)/python -m bench.live $(if $(FAST),--fast)

explore: .venv/.installed-dev  ## random months with every feature on, through engine and simulator, plain and compiled; SEEDS=10000, START=the first, PLAIN=1 for one core; LIVE=1 through the live loop, with kills
	@$(BIN)/python -m tests.explore --seeds $(or $(SEEDS),1000) $(if $(START),--start $(START)) $(if $(LIVE),--live,$(if $(PLAIN),,--both))

conformance: kube .venv/.installed-dev  ## every manifest of the suite as a plain Job and as a home Job, compared field by field; FAST=1 those that CI runs
	@$(BIN)/python -m tests.conformance $(if $(FAST),--quick)
	@$(BIN)/python -m pytest -q -n0 tests/conformance/test_unequal.py

docs: .venv/.installed-dev  ## write what the documents say of themselves: lives, picture, answers of commands; the chart's rights
	@$(BIN)/python -m tests.test_docs
	@$(BIN)/python -m tests.deploy.test_chart

bench-placement: .venv/.installed-dev  ## our cost against the best published policy's, on real traces; FAST=1 for a quick look
	@$(BIN)/python -m bench.placement $(if $(FAST),--fast)

bench-policy: .venv/.installed-dev  ## what a policy costs: verdicts a second, decisions with and without rules, policy diff; FAST=1 for a quick look, COMPILED=1 as the wheel has it
	@$(BIN)/python -m bench.policy $(if $(FAST),--fast) $(if $(COMPILED),--compiled)

# Where there is no Go, one is installed into .venv. If even that fails, the build says what is needed.
kube: .venv/.installed  ## build or find the Kubernetes programs for `penstock dev-cluster` and its tests; as root also for real pods; KUEUE=1 for Kueue, JOBSET=1 for JobSet, KARPENTER=1 for Karpenter, CAPI=1 for Cluster API, DNS=1 for CoreDNS, AUTOSCALER=1 for cluster-autoscaler, too
	@command -v go >/dev/null || [ -x $(BIN)/go ] || $(INSTALL) --require-hashes --requirement requirements/go.txt || true
	@$(BIN)/penstock dev-cluster build $(if $(KUEUE)$(filter 1,$(PENSTOCK_REQUIRE_ALL)),--kueue) $(if $(JOBSET)$(filter 1,$(PENSTOCK_REQUIRE_ALL)),--jobset) $(if $(KARPENTER)$(filter 1,$(PENSTOCK_REQUIRE_ALL)),--karpenter) $(if $(CAPI)$(filter 1,$(PENSTOCK_REQUIRE_ALL)),--cluster-api) $(if $(DNS)$(filter 1,$(PENSTOCK_REQUIRE_ALL)),--dns) $(if $(AUTOSCALER)$(filter 1,$(PENSTOCK_REQUIRE_ALL)),--autoscaler)

demo-kube: kube .venv/.installed-dev  ## a Job that bursts, loses its spot node and comes home, on three real clusters; KEEP=1 leaves them running
	@$(BIN)/penstock demo --kube $(if $(KEEP),--keep)

demo-clouds: .venv/.installed-dev  ## a peak on nodes that are rented from zero at two toy clouds, with a stock-out and a spot notice; KEEP=1 leaves them running
	@$(MAKE) --no-print-directory kube KARPENTER=1
	@$(BIN)/penstock demo --clouds $(if $(KEEP),--keep)

e2e-kube: kube .venv/.installed-dev  ## the same demo as a test, on real pods
	@PENSTOCK_REQUIRE_ALL=1 $(BIN)/python -m pytest -n 1 tests/e2e/test_clusters.py

venv: .venv/.installed-dev  ## install everything into .venv, if pyproject.toml changed

lock:  ## pin anew what `make demo` and `make test` install, where pyproject.toml asks for it; NEWEST=1 all of it
	@$(PYTHON) -m venv build/lock
	@build/lock/bin/python -m pip install --quiet --disable-pip-version-check --upgrade uv
	@$(LOCK) --extra dev --group build --output-file requirements/dev.txt pyproject.toml
	@$(LOCK) --extra aks --extra eks --extra gke --extra kubernetes --extra policy --extra postgres --extra s3 --constraint requirements/dev.txt --output-file requirements/image.txt pyproject.toml
	@$(LOCK) --group go --output-file requirements/go.txt
	@$(LOCK) --extra demo --group build --constraint requirements/dev.txt --output-file requirements/demo.txt pyproject.toml

clean:  ## remove .venv and all caches
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests $(wildcard bench) -name __pycache__ -type d -prune -exec rm -rf {} +

lint: .venv/.installed-dev
	@$(BIN)/ruff format --check --quiet $(CODE) || { echo "Not formatted; run: $(BIN)/ruff format $(CODE)" >&2; exit 1; }
	@$(BIN)/ruff check --quiet $(CODE)
	@$(BIN)/mypy --no-error-summary $(CODE)

# Exactly what requirements/*.txt name, by hash; then the project itself, built by the hatchling that is locked there.
.venv/.installed: pyproject.toml requirements/demo.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Penstock needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
	       "Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@echo "Installing into .venv (once, and again when pyproject.toml or requirements/ change)" >&2
	@$(PYTHON) -m venv .venv
	@$(INSTALL) --require-hashes --requirement requirements/demo.txt
	@$(INSTALL) --no-build-isolation --editable .
	@touch $@

# What the image has, in the versions of the other two locks.
.venv/.installed-run: .venv/.installed requirements/image.txt
	@$(INSTALL) --require-hashes --requirement requirements/image.txt
	@touch $@

# Apart from the above, so that the demo does not wait for tools it does not use.
.venv/.installed-dev: .venv/.installed requirements/dev.txt
	@$(INSTALL) --require-hashes --requirement requirements/dev.txt
	@touch $@
