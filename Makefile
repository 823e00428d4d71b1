# The entry point for all development tasks. Every target sets up what it needs; `make help` lists them.

.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON_OF_VENV := .venv/bin/python
# One Polars thread: tests and benchmarks run on one core, like one Spark task.
POLARS_MAX_THREADS ?= 1
export POLARS_MAX_THREADS
# Cached bytecode makes every test process start faster.
unexport PYTHONDONTWRITEBYTECODE
# How long `make soak` searches.
MINUTES ?= 10
WITH_JAVA = JAVA_HOME="$$(scripts/java.sh)" && export JAVA_HOME &&
WITH_POSTGRES = POSTGRES_PROGRAMS="$$(scripts/postgres.sh)" && export POSTGRES_PROGRAMS &&
# Temporary files in memory where there is room: many tests flush a small database.
IN_MEMORY = room=$$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $$4 }'); \
	if [ "$${room:-0}" -gt 2000000 ] && [ -w /dev/shm ]; then \
		TMPDIR=$$(mktemp -d /dev/shm/slackwater-XXXXXX); export TMPDIR; trap 'rm -rf "$$TMPDIR"' EXIT; fi;
WITH_CHROMIUM = { scripts/chromium.sh >/dev/null || true; } &&
WITH_JDBC = { POSTGRES_JDBC="$$(scripts/jdbc.sh)" || true; } && export POSTGRES_JDBC &&

.PHONY: help demo test proof soak check lint audit format bench nexmark peers scaling docs lock matrix clean environment

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1\t\2/p' Makefile | while IFS="$$(printf '\t')" read -r target text; do \
		printf '  make %-8s %s\n' "$$target" "$$text"; done

demo: environment ## run a pipeline on Spark and show its progress live
	@$(WITH_JAVA) $(PYTHON_OF_VENV) -m slackwater.demo

test: environment ## run all tests but the long ones, in at most 8 minutes on two cores
	@$(WITH_JAVA) $(WITH_POSTGRES) $(WITH_JDBC) $(PYTHON_OF_VENV) -m pytest -n 2 --dist worksteal -m "not proof" $(ARGS)

proof: environment ## run the long tests: processes killed repeatedly, deep searches
	@$(WITH_JAVA) $(WITH_POSTGRES) $(WITH_JDBC) $(WITH_CHROMIUM) $(PYTHON_OF_VENV) -m pytest -n 2 --dist worksteal -m proof $(ARGS)
	@$(PYTHON_OF_VENV) -m pytest -n 2 --dist worksteal --hypothesis-profile deep tests/property

soak: environment ## search for counterexamples with new seeds: make soak MINUTES=30
	@$(PYTHON_OF_VENV) -m tests.soak --minutes $(MINUTES) $(ARGS)

check: environment ## run the tests that need no Spark, in under a minute
	@$(IN_MEMORY) $(PYTHON_OF_VENV) -m pytest -n 2 --dist worksteal --hypothesis-profile quick -m "not spark and not postgres and not search and not proof" $(ARGS)

lint: environment ## check style, formatting and types
	@$(PYTHON_OF_VENV) -m ruff check .
	@$(PYTHON_OF_VENV) -m ruff format --check .
	@$(PYTHON_OF_VENV) -m mypy

audit: environment ## look for known advisories in the lock and for secrets in the files
	@$(PYTHON_OF_VENV) scripts/audit.py $(if $(INDEX),--index $(INDEX))
	@git ls-files -z -- ':!security/secrets.json' ':!src/slackwater/ui/static/vendor' | xargs -0 $(PYTHON_OF_VENV) -m detect_secrets.pre_commit_hook --baseline security/secrets.json
	@echo "no secrets in $$(git ls-files | wc -l) files"

format: environment ## format the code and sort imports
	@$(PYTHON_OF_VENV) -m ruff check --fix .
	@$(PYTHON_OF_VENV) -m ruff format .

bench: environment ## run the benchmarks: check the results, then time them
	@$(WITH_JAVA) $(WITH_POSTGRES) $(WITH_JDBC) $(PYTHON_OF_VENV) -m benchmarks $(ARGS)

nexmark: environment ## compare and time the Nexmark queries: make nexmark ARGS="--queries q5 q7 --engines slackwater flink"
	@$(WITH_JAVA) $(PYTHON_OF_VENV) -m benchmarks.nexmark $(ARGS)

peers: environment ## compare and time windows of other engines: make peers ARGS="--engines flink --rows 1000000"
	@$(WITH_JAVA) $(PYTHON_OF_VENV) -m benchmarks.peers $(ARGS)

scaling: environment ## measure batches on a local cluster, and fit a model to them
	@$(WITH_JAVA) $(PYTHON_OF_VENV) -m benchmarks.scaling $(ARGS)

docs: environment ## build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(PYTHON_OF_VENV) -m mkdocs build --quiet --strict
	@echo "open site/index.html"

lock: environment ## pin the newest versions that pyproject.toml allows, with their hashes
	@$(PYTHON_OF_VENV) -m uv pip compile --quiet --upgrade --universal --all-extras --generate-hashes \
		--no-header --no-emit-index-url --output-file requirements.lock pyproject.toml

matrix: environment ## try every supported PySpark, and write the table: make matrix ARGS="4.1 4.2"
	@$(WITH_JAVA) $(WITH_POSTGRES) $(PYTHON_OF_VENV) scripts/matrix.py $(ARGS)

clean: ## remove everything that the other targets created
	rm -rf .venv .venv.making demo-output site build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

environment:
	@scripts/bootstrap.sh
