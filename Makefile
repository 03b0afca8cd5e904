# What one does with knarr. `make run` and `make test` need nothing but Rust and, on Debian, the right to install packages.

CARGO ?= cargo
DATA_DIR ?= $(CURDIR)/target/cluster
PORT ?= 6443
# `make run` is for who wants to see it soon, everything else for who wants it fast. `PROFILE=dev` takes what the tests have
# built, with everything that they share.
PROFILE ?= $(if $(filter run,$(MAKECMDGOALS)),quick,release)
# An allocator of C costs the quick one more than it gives.
PACKAGES := $(if $(filter dev,$(PROFILE)),--workspace,-p knarr $(if $(filter quick,$(PROFILE)),--no-default-features))
MINUTES := $(if $(filter quick,$(PROFILE)),7,15)
# One more than there are processors: one may wait for the dashboard's page.
JOBS ?= $(shell expr $$(nproc) + 1)
PROGRAM := target/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))/knarr
# Where scripts/install-tools puts what is no package.
TOOLS := $(abspath $(or $(CARGO_TARGET_DIR),target))/tools
# What of the tests runs, such as `TESTS='--lib quantity'`: all, unless told otherwise.
TESTS ?=
# Only root can make containers; anybody else gets the control plane alone, on this machine only.
NODE_FLAGS := $(if $(filter 0,$(shell id -u)),,--disable-agent --bind-address 127.0.0.1)
# Tests wait more than they compute, so one more than there are processors run at once.
TEST_THREADS ?= $(shell expr $$(nproc) + 1)

.PHONY: help run before-run build release test fresh ci lint fmt fmt-check clippy licences advisories attack fuzz bench scale coverage failover machine soak tools clean

help: ## Show this list.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

run: before-run build ## Start a one-node cluster on this machine; Ctrl-C stops it, its data stay in target/cluster.
	@scripts/install-tools run
	@mkdir -p "$(DATA_DIR)"
	@scripts/first-steps "$(DATA_DIR)" "$(NODE_FLAGS)"
	exec $(PROGRAM) server --data-dir "$(DATA_DIR)" --https-port $(PORT) $(NODE_FLAGS)

before-run:
	@scripts/before-run "$(DATA_DIR)" "$(PORT)" "$(PROGRAM)"

build: ## Build the program for speed, as `make bench` measures it; target/bin has it as knarr and as kubectl.
	@scripts/install-tools build
	@scripts/build-page background
	@test -e $(PROGRAM) || echo "building knarr (profile $(PROFILE)): on two cores the first build takes about $(MINUTES) minutes"
	$(CARGO) build --profile $(PROFILE) --locked --jobs $(JOBS) $(PACKAGES)
	@mkdir -p target/bin
	@ln -sfn ../../$(PROGRAM) target/bin/knarr
	@ln -sfn knarr target/bin/kubectl

release: ## Build the static release program into target/dist, with its bill of materials and checksums.
	@scripts/install-tools build
	@scripts/build-page required
	@scripts/release

test: export PATH := $(TOOLS)/bin:$(PATH)
test: ## Run every test: rules, stores, crashes, real etcd, real kubectl, real containers (as root), client libraries, a real browser.
	@scripts/install-tools test
	@scripts/install-tools runner
	@scripts/build-page
	@scripts/test-page
	$(CARGO) build --locked --workspace
	@# nextest runs the tests of all programs side by side; cargo's own runner does where it could not be built.
	@if command -v cargo-nextest >/dev/null; then set -x; \
		$(CARGO) nextest run --no-fail-fast --test-threads $(TEST_THREADS) --locked --workspace $(TESTS); \
	else set -x; $(CARGO) test --no-fail-fast --locked --workspace $(TESTS); fi

fresh: ## Run `make run` and `make test` in a Debian with only Rust and make; takes hours on two cores.
	@scripts/install-tools test
	@scripts/install-tools runner-sources
	$(CARGO) test --locked -p tests --test fresh -- --ignored --nocapture --test-threads=1

ci: lint test ## Run what CI runs, nothing more or less.

lint: fmt-check clippy licences advisories ## Check formatting, warnings, licences and advisories of dependencies.

fmt: ## Format the code.
	$(CARGO) fmt --all

fmt-check:
	$(CARGO) fmt --all --check

clippy:
	@scripts/install-tools build
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

licences:
	@scripts/check-licences

advisories:
	@scripts/check-advisories

bench: ## Measure all, or the parts that follow (`make bench memory`): store, API server, controllers, scheduler, memory, DNS, proxy, ingress, kubectl, dashboard, node, volumes on a node and local cluster, also idle, and compare them with etcd, nginx, kubectl, containerd and upstream's figures.
	@scripts/install-tools bench
	@scripts/build-page
	$(CARGO) build --release --locked -p knarr
	$(CARGO) build --release --locked -p benches
	@for part in $(or $(BENCHES),all); do KNARR_BINARY=$(CURDIR)/target/release/knarr target/release/benches $$part || exit 1; done

# `make bench memory scheduler` runs these alone: the other goals are parts of it, with nothing to do of their own.
BENCHES := $(if $(filter bench,$(MAKECMDGOALS)),$(filter store api controllers scheduler cluster-size memory dns proxy ingress kubectl dashboard cluster idle node node-volumes,$(MAKECMDGOALS)))
.PHONY: $(BENCHES)
$(BENCHES):
	@:

# Sizes of `make scale`, such as `SCALE='--nodes 500 --pods 15000 --services 1000 --namespaces 100'` or `SCALE='--servers 3'`.
SCALE ?=
scale: ## Run 5,000 hollow nodes, 150,000 pods and 10,000 Services on this machine; measure upstream's objectives, a rolling update, node loss, restart and churn. SCALE has other sizes.
	@scripts/install-tools bench
	@scripts/build-page
	$(CARGO) build --release --locked -p knarr
	$(CARGO) build --release --locked -p benches
	KNARR_BINARY=$(CURDIR)/target/release/knarr target/release/benches scale $(SCALE)

# Built into a folder of its own (target/llvm-cov-target), from scratch. What tests are made of is not counted.
coverage: export PATH := $(TOOLS)/bin:$(PATH)
coverage: ## Count the lines that unit tests run, and those that are tests, and print a table by crate of each; it builds everything anew, in a folder of its own.
	@scripts/install-tools coverage
	if ! [ -x "$$(rustc --print target-libdir)/../bin/llvm-profdata" ]; then \
		export LLVM_COV="$$(command -v llvm-cov-19)" LLVM_PROFDATA="$$(command -v llvm-profdata-19)"; fi; \
	$(CARGO) llvm-cov --locked --workspace --exclude tests --exclude benches --exclude testkit --exclude fuzz --lib --bins --ignore-run-fail \
		--ignore-filename-regex '(/tests/|/tests\.rs$$|/generated/|/testkit/|/fuzz/)' --json --summary-only --output-path target/coverage.json
	@python3 scripts/coverage_table.py target/coverage.json
	@echo && python3 scripts/test_share.py

attack: ## Attack clusters as a peer, a pod, a node, a user of the machine and an author of objects; print what was tried and what held.
	@scripts/install-tools test
	$(CARGO) build --locked -p knarr -p demo-image
	@scripts/attack

# Overflows are findings, too, so it is the program of the tests, not the fast one.
fuzz: export FUZZ_SECONDS ?= 600
fuzz: export FUZZ_SEED ?= $(shell date +%s)
fuzz: ## Fuzz every parser, each for FUZZ_SECONDS (600) from FUZZ_SEED (the time), which is printed with a finding.
	$(CARGO) test --locked -p fuzz -- --nocapture
	$(CARGO) test --locked -p container-runtime -p ingress -p kube-controller-manager --lib -- --nocapture whatever_ name_only_digests was_changed

failover: ## Kill servers of a cluster under load, cut them off and fill their disks; print what clients saw.
	@scripts/install-tools test
	$(CARGO) build --locked -p knarr -p demo-image
	$(CARGO) test --locked -p tests --test failover

machine: ## Test in virtual machines of Debian packages: service, limits, SELinux labels, eviction, joins, reboots, twenty power cuts, upgrade, uninstall, other kernels.
	@scripts/install-tools machine
	$(CARGO) build --locked -p knarr
	KNARR_MACHINE=all $(CARGO) test --locked -p tests --test machine -- --test-threads=1 --nocapture

soak: ## Run the crash tests, two hundred rounds each.
	@scripts/install-tools test
	$(CARGO) build --locked -p knarr
	KNARR_SOAK_ROUNDS=200 $(CARGO) test --locked -p store --test crash
	KNARR_SOAK_ROUNDS=200 $(CARGO) test --locked -p tests --test durability

tools: ## Install what building and testing need.
	@scripts/install-tools test

clean: ## Remove everything that was built, and the cluster of `make run`.
	$(CARGO) clean
