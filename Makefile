# `make demo` shows everything; `make test` checks everything. Both do all their set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := $(if $(CI),-c constraints/ci.txt,)

# Two processes; the tests of one file share its fixtures, so that no model is trained twice.
TWO := -n 2 --dist loadfile --no-loadscope-reorder

# What stands in for processors that round otherwise.
ROUNDINGS := MKL_CBWR=COMPATIBLE MKL_CBWR=AVX2 ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=AVX2 SHAKEN_BY=1

# Shapes and types of arguments are checked at every call: in one run, since that takes time.
CHECKED := --jaxtyping-packages=vestige.losses,vestige.metrics,vestige.models.forward,vestige.models.scoring,$\
vestige.models.generation,vestige.training,beartype.beartype
PORTABLE = $$(grep -rl --include="test_*.py" "mark.portable" tests)

# A shell may forbid it; each of the processes that tests start would compile the package anew.
test test-fast check-portable check-wheel: export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-fast check check-lowest check-peers check-portable check-wheel docs site fix setup clean
help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Vestige needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile $(CONSTRAINTS) -e '.[models]'
	touch $@

$(VENV)/.ready: $(VENV)/.installed
	$(BIN)/pip install --quiet $(CONSTRAINTS) -e '.[models,dev,docs]'
	touch $@

setup: $(VENV)/.ready  ## Create .venv and install Vestige with its development tools

demo: $(VENV)/.installed  ## Run PISTOL's sample dataset 1 through the whole pipeline; write runs/demo/report.html
	$(BIN)/vestige demo

check: setup  ## What CI checks before the tests: style, types, who imports whom, generated pages, links, size
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/cli_page.py
	$(BIN)/python tools/methods_page.py --check
	$(BIN)/python tools/house.py
	$(BIN)/python tools/prose_lint.py --check
	$(BIN)/python tools/figures.py --check
	$(BIN)/python tools/llms.py --check
	@# --quiet would hide the warnings that --strict counts.
	$(BIN)/mkdocs build --strict > .mkdocs.log 2>&1 || { cat .mkdocs.log; exit 1; }

docs: setup  ## Write the generated pages: commands, methods, figures of benchmarks/, llms.txt
	$(BIN)/python tools/cli_page.py
	$(BIN)/python tools/methods_page.py
	$(BIN)/python tools/figures.py
	$(BIN)/python tools/llms.py

site: setup  ## Write the documentation as a website that works offline, into site/
	$(BIN)/python tools/cli_page.py
	$(BIN)/mkdocs build --strict

fix: setup  ## Let the tools settle layout
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

test: setup  ## All tests
	$(BIN)/pytest $(TWO)

test-fast: setup  ## The tests that take less than about half a second each
	$(BIN)/pytest $(TWO) -m "not slow"

# LOWEST_TORCH=torch==2.13.0+cpu where no older torch is served; then torch's own bound is not checked.
check-lowest:  ## The fast tests with the lowest versions that pyproject.toml admits, in .venv-lowest
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/pip install --quiet uv
	.venv-lowest/bin/uv pip install --python .venv-lowest/bin/python --resolution lowest-direct \
		$(addprefix --find-links ,$(PIP_FIND_LINKS)) -e '.[models,dev]' $(LOWEST_TORCH)
	.venv-lowest/bin/python -m pytest -m "not slow"

check-portable: setup  ## The quick tests of numbers, rounded as five other kinds of processors would, two at a time; shapes checked
	@printf '%s\n' $(ROUNDINGS) | xargs -P 2 -I{} sh -c 'said=$$({} OMP_NUM_THREADS=1 $(BIN)/pytest -q -m "portable and not slow" \
		-p no:cacheprovider $(PORTABLE) 2>&1); code=$$?; \
		printf "== %s\n%s\n" {} "$$(echo "$$said" | tail -n 30)"; exit $$code'
	$(BIN)/pytest -q $(TWO) $(CHECKED) -p no:cacheprovider -m "not slow" $(PORTABLE) tests/metrics tests/test_losses.py

check-wheel: setup  ## The fast tests of commands, reports and studies against the built wheel in place of src
	rm -rf .wheel && $(BIN)/pip wheel --quiet --no-deps --wheel-dir .wheel/dist .
	$(BIN)/pip install --quiet --no-deps --target .wheel/site .wheel/dist/*.whl
	PYTHONPATH=.wheel/site $(BIN)/python -c 'import vestige; assert ".wheel" in vestige.__file__, vestige.__file__'
	PYTHONPATH=$(CURDIR)/.wheel/site $(BIN)/pytest -q $(TWO) -p no:cacheprovider -m "not slow" tests/cli tests/core tests/report tests/experiments

check-peers: setup  ## Recipes and exports with the newest lm-eval, Inspect and Every Eval Ever, in .peers (minutes)
	$(BIN)/python tools/check_peers.py

clean:  ## Remove the environment and caches; runs/ stays
	rm -rf $(VENV) .venv-lowest .peers .wheel .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
