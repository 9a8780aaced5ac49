# make tune             tune a small model made here, on what the machine has (ten minutes on two cores, installation included)
# make tune MODEL=meta-llama/Llama-3.1-8B-Instruct GPU=H100 BUDGET=2h WORKLOAD=chat SERVE_ARGS="--max-model-len 8192"
# make test             install what tests need and run all of them; `make unit` only those without vLLM and without whole tunes
# make lint             ruff
# PYTHON=python3.12 chooses the interpreter, ENGINE_PYTHON=PATH a vLLM that is installed elsewhere.

.DEFAULT_GOAL := help
.NOTPARALLEL: # pip must not run twice in one environment
.PHONY: help tune test unit lint pins clean install _test

PYTHON ?=
MACHINE := $(shell sh tools/gpu_kind.sh)
# Which vLLM to install: the machine's, the CPU one for GPU=cpu, none where the person brings one.
ENGINE ?= $(if $(ENGINE_PYTHON),none,$(if $(filter cpu CPU,$(GPU)),cpu,$(MACHINE)))
# Two engines do not fit into one environment: beside a GPU the CPU engine gets its own.
VENV_NAME := .venv$(if $(filter cuda-cpu,$(MACHINE)-$(ENGINE)),-cpu)
# torch.compile cannot link from a path with a space in it: then the environment lies elsewhere.
ELSEWHERE := $(HOME)/.cache/advisor/$(firstword $(shell pwd | cksum))
VENV ?= $(if $(word 2,$(CURDIR)),$(ELSEWHERE)/)$(VENV_NAME)
DONE := $(VENV)/.done
# What needs no vLLM is content with any that is there, so as not to disturb its versions.
ANY_ENGINE := $(firstword $(wildcard $(DONE)/engine-*) $(DONE)/engine-none)
export MODEL GPU BUDGET TRIALS WORKLOAD SERVE_ARGS SERVE_ENV ENGINE_PYTHON SPACE STUDY OUTPUT

help:
	@sed -n 's/^# //p' Makefile | head -5

tune: install
	@bash tools/tune.sh $(VENV) $(if $(filter cpu,$(MACHINE) $(ENGINE)),cpu,cuda)

install: $(if $(filter none,$(ENGINE)),$(ANY_ENGINE),$(DONE)/engine-$(ENGINE)) $(DONE)/advisor

# The tests' real vLLM is the CPU one on every machine.
test:
	@$(MAKE) --no-print-directory _test ENGINE=cpu

_test: install $(DONE)/tools
	@bash tools/test.sh $(VENV)/bin/python $(ARGS)

unit: $(ANY_ENGINE) $(DONE)/advisor $(DONE)/tools
	$(VENV)/bin/python -m pytest -n 3 --dist worksteal -m "not engine and not gpu and not slow" $(ARGS)

lint: $(DONE)/tools
	$(VENV)/bin/python -m ruff check .

# The pinned lists anew, from pyproject.toml and tools/pin.py; PIN=--keep changes no release that is pinned already.
pins: $(DONE)/venv
	$(VENV)/bin/python -m pip install --quiet uv
	$(VENV)/bin/python tools/pin.py --uv $(VENV)/bin/uv $(PIN)

clean:
	rm -rf .venv .venv-cpu build dist

$(DONE)/venv: tools/make_venv.sh constraints/build.txt
	@echo "making $(VENV)"
	@bash tools/make_venv.sh $(VENV) $(PYTHON)
	@$(VENV)/bin/python -m pip install --quiet --no-deps -r constraints/build.txt
	@mkdir -p $(DONE) && touch $@

$(DONE)/engine-cpu: constraints/cpu.txt constraints/torch.txt tools/mend_cpu_engine.py tools/numa.sh
$(DONE)/engine-cuda: constraints/cuda.txt
$(DONE)/engine-none: constraints/base.txt constraints/plots.txt
$(DONE)/engine-cpu $(DONE)/engine-cuda $(DONE)/engine-none: $(DONE)/engine-%: tools/install_engine.sh tools/compiler.sh \
		| $(DONE)/venv
	@echo "installing the advisor's requirements$(if $(filter none,$*),, and vLLM ($*): minutes the first time)"
	@bash tools/install_engine.sh $(VENV) $*
	@touch $@

$(DONE)/advisor: pyproject.toml | $(DONE)/venv
	@$(VENV)/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(DONE)/tools: constraints/tools.txt | $(DONE)/venv
	@$(VENV)/bin/python -m pip install --quiet --no-deps -r constraints/tools.txt
	@touch $@
