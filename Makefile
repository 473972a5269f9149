# The commands of daily use; each builds .venv first if it is missing. `make help` lists them.
PYTHON  ?= python3
# A machine with its own CUDA or ROCm build: make setup TORCH='torch==2.9.1 --index-url …', or an already installed one.
TORCH   ?= torch==2.13.0
PROFILE ?= this-machine
BUDGET  ?= 300
RUNS    ?=
FRESH   ?=
CLUSTER ?=
DONOR   ?=
MODEL   ?=
DATA    ?=
KEEP    ?=
MEASUREMENTS ?= $(wildcard ../shared/data)
CONFIG  ?= configs/runs/demo.yml
SYSTEM  ?= h100_sxm
IMPORTED = $(subst _,-,$(SYSTEM))-aiconfigurator
BIN     := .venv/bin
# PYTHON where it has torch, as on a machine that trains; else that of .venv
WITH_TORCH = $(shell for python in $(PYTHON) $(BIN)/python; do \
	$$python -c 'import importlib.util as u; exit(not u.find_spec("torch"))' 2>/dev/null && echo $$python && exit; done; echo $(PYTHON))
READY   := .venv/.ready

.PHONY: help setup demo sample gpu-session import train-regressors predict measure validate serve bench bench-accuracy bench-published tables reference test golden wheel trust check format clean

help:  ## list the commands
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## build .venv and install the project

$(READY): pyproject.toml requirements-dev.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/pip install --quiet $(TORCH)
	$(BIN)/pip install --quiet --constraint requirements-dev.txt --editable '.[dev]'
	@touch $(READY)

demo: $(READY)  ## sample this machine, learn, predict configs/runs/demo.yml, and hold it against the real step
	@$(BIN)/predict calls configs/runs/demo.yml --output .venv/demo-calls.json
	@$(BIN)/python -m sampling --profile demo --budget 150 --calls .venv/demo-calls.json --visits 9
	@$(BIN)/python -m regressors --profile demo --brief
	@$(BIN)/predict one-batch configs/runs/demo.yml --set cluster.profile=demo
	@$(BIN)/predict validate configs/runs/demo.yml --set cluster.profile=demo
	@echo
	@echo "Next, in this shell:"
	@echo "  source .venv/bin/activate              # puts predict on the PATH"
	@echo "  make sample RUNS=configs/runs/demo.yml BUDGET=300 && make train-regressors    # rows of this machine for every config"
	@echo "  predict one-batch configs/runs/demo.yml --set plan.pp=1 --set plan.tp=2       # what if?"
	@echo "  predict --help                         # memory, schedules, validation; docs/tutorial.md goes on"

sample: $(READY)  ## time operators and collectives here [PROFILE= or CLUSTER=file, BUDGET=seconds RUNS="a.yml b.yml" FRESH=1]
	@$(if $(RUNS),$(BIN)/predict calls $(RUNS) --output .venv/calls.json)
	@$(BIN)/python -m regressors.active.guided_sampling $(if $(CLUSTER),--cluster $(CLUSTER),--profile $(PROFILE)) --budget $(BUDGET) $(if $(RUNS),--calls .venv/calls.json) $(if $(FRESH),--fresh)

gpu-session:  ## spend minutes of one GPU on rows, without pip [MINUTES= OUT=folder RUNS="a.yml b.yml" HARDWARE=h200 STEPS=file DRY=1]
	@$(if $(RUNS),PYTHONPATH=. $(WITH_TORCH) -m predict calls $(RUNS) $(if $(HARDWARE),--set cluster.hardware=$(HARDWARE)) --output gpu-calls.json)
	@$(WITH_TORCH) -m sampling.gpu_session $(if $(MINUTES),--minutes $(MINUTES)) $(if $(OUT),--out $(OUT)) $(if $(RUNS),--calls gpu-calls.json) $(if $(HARDWARE),--hardware $(HARDWARE)) $(if $(STEPS),--steps $(STEPS)) $(if $(DRY),--dry-run)

import: $(READY)  ## published rows of a GPU instead of sampling it, and what is learnt from them [SYSTEM=h100_sxm]
	@$(BIN)/python -c 'import sys; from sampling.importers.aiconfigurator import SYSTEMS as known; "$(SYSTEM)" in {**known, **{each: 0 for each in known.values()}} or sys.exit("SYSTEM=$(SYSTEM): no such system; known: " + ", ".join(known))'
	@$(BIN)/pip install --quiet --no-deps "$$($(BIN)/python -c 'from sampling.importers.aiconfigurator import PINNED; print(PINNED)')"
	@$(BIN)/python -m sampling import aiconfigurator --system $(SYSTEM) --profile $(IMPORTED)
	@$(BIN)/python -m regressors --data data/imported --profile $(IMPORTED)
	@echo "Runs answer from these rows once they name them: cluster.profile: $(IMPORTED), or --set cluster.profile=$(IMPORTED);"
	@echo "the line 'rests on' of predict one-batch says how much of a step they cover."

train-regressors: $(READY)  ## fit a time model for every sampled operator [PROFILE= MODEL=kind DATA=folder DONOR=profile of another device]
	@$(BIN)/python -m regressors --profile $(PROFILE) $(if $(MODEL),--model $(MODEL)) $(if $(DATA),--data $(DATA)) $(if $(DONOR),--donor $(DONOR))

predict: $(READY)  ## predict one step [CONFIG=]
	@$(BIN)/predict one-batch $(CONFIG)

measure: $(READY)  ## run the step for real [CONFIG=]
	@$(BIN)/predict measure $(CONFIG)

validate: $(READY)  ## predict this machine's validation runs, then measure them [KEEP=1: as the error of its profile]
	@$(BIN)/predict validate this-machine $(if $(KEEP),--keep)

SERVED = configs/serving/this-machine/*.yml
serve: $(READY)  ## sample this machine, time steps of a small real server, predict its loads, then serve them [BUDGET=seconds]
	@$(BIN)/predict calls $(SERVED) --output .venv/serving-calls.json
	@$(BIN)/python -m sampling --profile this-machine --budget $(BUDGET) --models 0 --calls .venv/serving-calls.json
	@$(BIN)/python -m regressors --profile this-machine --brief
	@$(BIN)/predict validate $(SERVED)

bench: $(READY)  ## speed: cold start, estimates, schedules, memory, searches, pages, fits
	@$(BIN)/python tests/bench/start_up.py
	@$(BIN)/python tests/bench/schedules.py
	@$(BIN)/python tests/bench/plans.py
	@$(BIN)/python tests/bench/memory.py
	@$(BIN)/python tests/bench/search.py
	@$(BIN)/python tests/bench/pages.py
	@$(BIN)/python -m tests.bench.fit

bench-accuracy: $(READY)  ## judge the time models on rows held out [MEASUREMENTS=folder of published tables]
	@$(BIN)/predict validate samples $(if $(MEASUREMENTS),--measurements $(MEASUREMENTS))

bench-published: $(READY)  ## predict published runs and keep the errors [TRUTH=CSV file of measured runs]
	@$(BIN)/predict validate published --json $(if $(TRUTH),--truth $(TRUTH)) | $(BIN)/python docs/keep_published.py

tables: $(READY)  ## put fresh figures into README and docs
	@$(BIN)/python docs/refresh_tables.py

reference: $(READY)  ## write docs/reference from the code, and the JSON copies of shipped YAML
	@$(BIN)/python docs/refresh_reference.py
	@$(BIN)/python -m sampling.files.yaml_copies

test: $(READY)  ## run the tests, on all cores
	@$(BIN)/pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

golden: $(READY)  ## hold what every command answers for every shipped config against the kept answers [WRITE=1: keep them]
	@$(BIN)/python -m tests.golden.answers $(if $(WRITE),--write)

wheel: $(READY)  ## build the wheel, the same to the byte each time, with the list of what it needs beside it [OUT=folder]
	@$(BIN)/python -m tests.trust.supply --wheel $(or $(OUT),dist)

trust: $(READY)  ## laws, damaged files, interruptions, hostile clients and the supply chain, tried as docs/explanation/trust.md says: hours
	@$(BIN)/python -m tests.trust.laws --keep
	@$(BIN)/python -m tests.trust.capacity
	@$(BIN)/python -m tests.trust.fuzz --keep
	@$(BIN)/python -m tests.trust.interruptions --keep
	@$(BIN)/python -m tests.trust.explorer --keep
	@$(BIN)/python -m tests.trust.supply --keep

check: $(READY)  ## format, lint, types, import layers, sizes
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m tests.sizes

format: $(READY)  ## format the code and mend what can be mended
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean:  ## remove what setup and the tools made
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
