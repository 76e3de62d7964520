# Two commands matter: `make demo` and `make test`. Both work on a fresh checkout.
VENV := .venv
BIN := $(VENV)/bin
PROTO_VENV := .venv-proto
PIP := -m pip install --disable-pip-version-check

.PHONY: setup demo quick test long root explore fuzz faults rest worlds live forked-training check lint generated proto bench bench-compare bundle wheels lock clean

setup: $(VENV)/.done

$(VENV)/.done: constraints.txt pyproject.toml iterator_sdk/pyproject.toml $(wildcard eva_master/packing/*/*.c eva_master/packing/*/*/*.c)
	@echo "Setting up $(VENV): Python, then $$(grep -c '^[^ #]' constraints.txt) packages, some minutes the first time"
	python3 -m venv $(VENV)
	$(BIN)/python $(PIP) --require-hashes -r constraints.txt
	$(BIN)/python $(PIP) --quiet --no-deps --no-build-isolation -e ./iterator_sdk -e .
	@$(BIN)/python -m deploy.kernel >/dev/null
	@touch $@
	@echo "Ready: $(BIN)/eva --help"

demo: setup
	$(BIN)/eva demo

# Unit tests near the files that differ from main, within two minutes; all of them (ALL=1) take three.
quick: setup
	@$(BIN)/python -m tests.quick $(if $(ALL),--all)

# Several at once, and those that only wait beside them. No test needs root; `make root` runs the rest.
# With ALL=1 those of `make long`, too: a property's first examples are tried a single time.
test: setup
	$(BIN)/python -m tests $(if $(ALL),--all)

# Tests left out there, so that it is done in a quarter of an hour, and property tests with all of
# their examples; some minutes.
long: setup
	$(BIN)/python -m tests --long

# Tests that need root, most of them dockerd too, long or not.
root: setup
	$(BIN)/python -m tests --root

# Property tests with examples that no run has seen, and tests too long for every change. Findings
# become fixed examples.
explore: setup
	EVA_NEW_EXAMPLES=1 $(BIN)/python -m pytest tests/property tests/conformance/test_policies.py \
		tests/conformance/test_splitter.py tests/simulation/supply/test_failing_boots.py \
		tests/simulation/test_priority.py tests/simulation/test_chains.py \
		tests/simulation/test_suspends.py -n 2
	EVA_NEW_EXAMPLES=1 $(BIN)/python -m pytest -m explore tests -n 2

# Tasks that say and do what nobody expects; goes on where it was stopped (build/fuzz.txt).
fuzz: setup
	$(BIN)/python -m tests.fuzz --count 100000

# Two hundred kills and pauses over everything that a cluster consists of, under jobs of every kind,
# and a hundred with tasks in containers, which need root and dockerd; an hour or two. Another run
# goes on where an earlier one was interrupted.
faults: setup
	nice $(BIN)/python -m tests.faults --count 200 --seed 7
	nice $(BIN)/python -m tests.faults --count 100 --seed 7 --containers

# Laws of policies, over thousands of clusters that no run has seen; hours. Run it again to go on
# where it was stopped. Findings become fixed examples.
rest: setup
	nice $(BIN)/python -m benchmarks.conformance --clusters 20000 --policy eva --property rest
	nice $(BIN)/python -m benchmarks.conformance --clusters 2000

# Ten thousand small worlds under the default policy, judged by oracles; hours. Run it again to go
# on where it was stopped (build/worlds.txt). Findings become fixed worlds.
worlds: setup
	nice $(BIN)/python -m tests.worlds.campaign --count 10000

# A trace of jobs (FILE=...), two hundred times faster, on a live master with emulated workers:
# about fifteen minutes for each of four policies. Run it again to go on where it was stopped.
live: setup
	nice $(BIN)/python -m benchmarks.live_run_times $(FILE)

# Small models trained by forks on nodes of several speeds, and by one; half an hour of one core.
# PyTorch is needed, and another run goes on where it was stopped (build/forked-training.jsonl).
forked-training: setup
	nice $(BIN)/python -m benchmarks.forked_training --model images --model characters
	nice $(BIN)/python -m benchmarks.forked_training --seeds 1

check: generated lint

# The code for the wire is the one that the contracts give.
generated: proto
	git diff --exit-code -- '*/_proto/*'

# Format, lint, types, layers, links, sizes, words.
lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.checks

$(PROTO_VENV)/.done: proto/requirements.txt
	python3 -m venv $(PROTO_VENV)
	$(PROTO_VENV)/bin/python $(PIP) --quiet --require-hashes -r proto/requirements.txt
	touch $@

proto: $(PROTO_VENV)/.done
	$(PROTO_VENV)/bin/python proto/generate.py

bench: setup
	$(BIN)/python -m benchmarks

# Is a commit (NEW, by default HEAD) more than a tenth slower than another one? BASE=COMMIT names that.
bench-compare: setup
	@test -n "$(BASE)" || { echo "Name the commit to compare with: make bench-compare BASE=main"; exit 2; }
	$(BIN)/python -m benchmarks.compare $(BASE) --new $(or $(NEW),HEAD)

# Needs uv. Names no index address.
lock:
	mkdir -p build
	sed '/"eva-scheduler\[/d; /"eva-iterator/d' pyproject.toml > build/pyproject.toml
	uv pip compile build/pyproject.toml --all-extras --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-header --no-annotate -o constraints.txt
	uv pip compile proto/requirements.in --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-header --no-annotate -o proto/requirements.txt

clean:
	rm -rf $(VENV) $(PROTO_VENV) .cache build dist .mypy_cache .ruff_cache .pytest_cache

# Files for a cloud machine: one tar of wheels each, for its bucket.
bundle: setup
	$(BIN)/python -m deploy.bundle worker
	$(BIN)/python -m deploy.bundle master

# Wheels of the six distributions.
wheels: setup
	$(BIN)/python -m deploy.wheels
