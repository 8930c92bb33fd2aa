# Every target works on a fresh machine: it installs what it needs into .venv first.
PYTHON ?= python3
BIN := .venv/bin
EXTRAS ?= dev
RESULTS ?= results

.PHONY: help install test test-all lint bench smoke reproduce reproduce-field reproduce-cluster figures gpu-check

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "%-14s %s\n", $$1, $$2}'

install: .venv/.installed-$(EXTRAS)  ## install into .venv, exact versions from constraints.txt
	@$(BIN)/python -m experiments.installed

.venv/.installed-$(EXTRAS): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version.split()[0])'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	touch $@

test: install  ## all tests that need no GPU; those of Slurm and the browser where these are installed
	$(BIN)/python -m pytest -n 2 --dist loadgroup

test-all: install  ## the slow ones too
	$(BIN)/python -m pytest -m "slow or not slow"

gpu-check: install  ## one GPU, four minutes: tests, timings for the simulator, utilisation, memory
	$(BIN)/python -m bitpipe.gpu_check

lint: install  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: install  ## timings of schedules, simulator, runtime and start-up, into results/bench/
	$(BIN)/python benchmarks/schedule_generation.py
	$(BIN)/python benchmarks/simulator.py
	$(BIN)/python benchmarks/simulator_vs_virtual.py
	$(BIN)/python benchmarks/runtime_vs_torch.py
	$(BIN)/python benchmarks/start_up.py

# Local on purpose, also where sbatch is: this is the laptop's reproduction.
RUN := $(BIN)/python run.py hydra/launcher=local results=$(RESULTS) draw=false
# The paper's, by name: what is added beside them has targets of its own, so that this one stays under ten minutes.
EXPERIMENTS := fig1_partition fig2_bitpipe fig3_schedules fig4_eager_sync fig5_mapping fig6_scaling_n fig7_scaling_v \
    fig8_memory_pp fig9ab_throughput_pp fig9cd_throughput_dp fig10_memory_dp fig11_hyperparameters \
    table2_mechanisms table3_bubble_memory table4_models table5_search table6_ablation table6_searched \
    tradeoff_memory_throughput

smoke: install  ## Table 6, simulated, and one virtual row with real ranks: the chain in a few minutes
	$(RUN) +experiment=table6_ablation backend=simulate -m
	$(RUN) +experiment=table6_ablation backend=virtual model=bert_tiny depth=4 micro_batches=depth -m
	$(BIN)/python -m analysis table6_ablation --results $(RESULTS)

reproduce: install  ## every table and figure, simulated at the paper's scale; Table 6 by real ranks, too
	set -e; for name in $(EXPERIMENTS); do $(RUN) +experiment=$$name backend=simulate -m; done
	$(RUN) +experiment=table6_ablation backend=virtual model=bert_tiny -m
	$(BIN)/python -m experiments.sensitivity --results $(RESULTS)
	$(BIN)/python -m analysis all --results $(RESULTS)

# Beside the paper: another paper's table, a few seconds, and all methods side by side, half a minute on two cores.
FIELD := zero_bubble_table5 field

reproduce-field: install  ## another paper's table, and every method side by side
	set -e; for name in $(FIELD); do $(RUN) +experiment=$$name backend=simulate -m; done
	set -e; for name in $(FIELD); do $(BIN)/python -m analysis $$name --results $(RESULTS); done

# Those that measure something on GPUs; without Slurm and GPUs run.py says so and stops.
ON_GPUS := $(filter-out $(basename $(notdir $(shell grep -lE 'override /(backend: simulate|calibration: unit)' \
	conf/experiment/*.yaml))), $(EXPERIMENTS))

# All are submitted before the first one is waited for. ARGS goes to every run.py; without GPUs, for instance:
#   make reproduce-cluster ARGS='backend=virtual model=bert_tiny model.hidden=64 depth=4 width=1'
ON_CLUSTER := $(BIN)/python run.py hydra/launcher=slurm results=$(RESULTS) draw=false wait=false \
	$(if $(filter backend=%,$(ARGS)),,backend=cuda) $(ARGS)

reproduce-cluster: install  ## every table and figure that GPUs can measure, as Slurm jobs; ARGS="KEY=VALUE …"
	set -e; for name in $(ON_GPUS); do $(ON_CLUSTER) +experiment=$$name -m; done
	failed=0; $(BIN)/python -m slurm collect $(ON_GPUS) --wait --results $(RESULTS) || failed=1; \
	    $(BIN)/python -m analysis all --results $(RESULTS); exit $$failed

figures: install  ## every table and figure again, from the committed reference records
	$(BIN)/python -m analysis all --results results/reference
