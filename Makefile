# Everything a newcomer types. Needs python3 (3.11 or later) with venv, and make; installs the rest into .venv.
PYTHON ?= python3
BIN := .venv/bin
INSTALL = $(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-warn-script-location
# Pins for one environment, each held to its sha256; `make lock` writes them. They name no index: pip uses yours. Wheels only:
# what builds a source would come without a hash.
PINNED = $(INSTALL) --require-hashes --only-binary=:all:

.PHONY: demo test test-busy check lint check-infra bench nightly mutants slow test-backends test-frameworks test-studies docs lock clean

demo: .venv/.run
	$(BIN)/fundoscope demo

# Two processes side by side, a file at a time, the longest first (tests/conftest.py). In one: make test PROCESSES=0
PROCESSES ?= 2
test: .venv/.dev
	$(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

# Twenty times in a row beside a load of six, the tests that such a load used to fail: an hour or more.
test-busy: .venv/.dev
	$(BIN)/python tests/busy.py --times 20 --load 6 --minutes 180

check: lint check-infra

lint: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# infra/ as Terraform writes it, valid, and by the rules of a policy scanner, which needs neither Terraform nor an account.
ifeq ($(shell command -v terraform),)
check-infra: .venv-scan/.scan
	@echo "terraform is not installed: infra/ was not validated"
else
check-infra: .venv-scan/.scan build/infra/.valid
	terraform fmt -check -recursive infra
endif
	.venv-scan/bin/checkov --directory infra --config-file infra/.checkov.yaml

# Validated in a copy, and again once a file has changed: the provider is large, and slow to start.
PLUGINS := $(firstword $(wildcard $(FUNDOSCOPE_TF_PLUGINS) /opt/tf-plugins /usr/local/share/terraform/plugins))
build/infra/.valid: $(shell find infra -type f -not -path '*/.terraform/*')
	rm -rf build/infra && mkdir -p build && cp -r infra build/infra
	@if terraform -chdir=build/infra init -input=false -lockfile=readonly $(PLUGINS:%=-plugin-dir=%) >build/infra/init.log 2>&1; \
	then terraform -chdir=build/infra validate && touch $@; \
	else echo "terraform cannot get the AWS provider (build/infra/init.log): infra/ was not validated"; fi

bench: .venv/.dev
	for bench in $$(grep -l __main__ benchmarks/*.py); do $(BIN)/python $$bench --quick || exit 1; done

# Twenty times as many hostile requests as `make test` sends.
nightly: .venv/.dev
	FUZZ=20 $(BIN)/python -m pytest tests/serve/test_fuzz.py

# A seeded sample of 300 changes of the code, each against the tests that run it. Ended at any moment, it goes on from there.
mutants: .venv/.dev .venv-mutants/.mutants
	.venv-mutants/bin/python tests/mutants/run.py

# Gigabytes of frameworks: CI runs one of the three a day, in turn.
slow: test-backends test-frameworks test-studies

docs: .venv/.run
	NO_COLOR=1 $(BIN)/python -m fundoscope.cli.reference > docs/reference.md

# The JAX and PyTorch backends beside TensorFlow, in an environment of their own: 2 GB that most users do not need.
test-backends: .venv-backends/.backends
	.venv-backends/bin/python -m pytest -m backend tests/backends tests/artefact

# Studies' networks in TensorFlow, PyTorch, MXNet and JAX, each in the environment that `study setup` makes for it (3.5 GB).
test-frameworks: .venv/.dev
	$(BIN)/python -m pytest -m frameworks tests/frameworks

# Studies over a Ray cluster, and in MLflow.
test-studies: .venv-studies/.studies
	.venv-studies/bin/python -m pytest -m "ray or mlflow" tests/ray tests/mlflow

.venv/.run: requirements/run.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(call PINNED,.venv) -r requirements/run.txt
	$(call INSTALL,.venv) --no-deps --no-build-isolation -e .
	touch $@

.venv/.dev: requirements/dev.txt .venv/.run
	$(call PINNED,.venv) -r requirements/dev.txt
	touch $@

.venv-backends/.backends: requirements/backends.txt pyproject.toml
	$(PYTHON) -m venv .venv-backends
	$(call PINNED,.venv-backends) -r requirements/backends.txt
	$(call INSTALL,.venv-backends) --no-deps --no-build-isolation -e .
	touch $@

# The scanner's requirements are older than ours.
.venv-scan/.scan: requirements/scan.txt
	$(PYTHON) -m venv .venv-scan
	$(call PINNED,.venv-scan) -r requirements/scan.txt
	touch $@

.venv-studies/.studies: requirements/studies.txt pyproject.toml
	$(PYTHON) -m venv .venv-studies
	$(call PINNED,.venv-studies) -r requirements/studies.txt
	$(call INSTALL,.venv-studies) --no-deps --no-build-isolation -e .
	touch $@

# The mutation tester brings a terminal interface that nobody else needs.
.venv-mutants/.mutants: requirements/mutants.txt
	$(PYTHON) -m venv .venv-mutants
	$(call PINNED,.venv-mutants) -r requirements/mutants.txt
	touch $@

LOCK = uv pip compile --quiet --no-emit-index-url --no-emit-find-links --no-header --no-annotate --python-version 3.11 --generate-hashes
FRAMEWORKS = src/fundoscope/experiment/requirements
lock:
	# For every platform: what only one of them needs has a marker, so that x86-64 and arm64 install from the same file.
	for name in run dev backends studies scan mutants; do \
	  $(LOCK) --universal --no-emit-package fundoscope requirements/$$name.in -o requirements/$$name.txt || exit 1; done
	# Lean and build list all they need themselves.
	for name in lean build; do $(LOCK) --no-deps containers/$$name.in -o containers/$$name.txt || exit 1; done
	for name in full reduced; do $(LOCK) containers/$$name.in -o containers/$$name.txt || exit 1; done
	# The pins of studies' frameworks are chosen by hand, their hashes are not.
	mkdir -p build && for file in $(FRAMEWORKS)/*.txt; do \
	  grep '^#' $$file > build/head; grep -o '^[a-z0-9.-]*==[^ ]*' $$file > build/pins.in; rm -f build/pins.txt; \
	  $(LOCK) --no-deps build/pins.in -o build/pins.txt && cat build/head build/pins.txt > $$file || exit 1; done
	# PyTorch's CPU build is published apart, under the same version to pip: its wheels for Linux, Python 3.11 to 3.14.
	for file in requirements/torch-*-cpu.hashes; do version=$${file#*torch-}; \
	  for lock in requirements/backends.txt $(FRAMEWORKS)/pytorch-cpu.txt; do grep -qFf $$file $$lock || \
	  sed -i "/^torch==$${version%-cpu.hashes} /r $$file" $$lock || exit 1; done; done

clean:
	rm -rf .venv .venv-backends .venv-studies .venv-scan .venv-mutants .mypy_cache .ruff_cache .pytest_cache
