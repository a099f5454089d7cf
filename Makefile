# The targets that people and CI call. Each does all the set-up it needs: tools are built or installed once per version into
# a cache outside the checkout ($CAPMAAS_CACHE, else ~/.cache/capmaas).

.DEFAULT_GOAL := help
SHELL := /bin/bash

CARGO ?= cargo
CACHE := $(or $(CAPMAAS_CACHE),$(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME)/capmaas,$(HOME)/.cache/capmaas))
DENY_VERSION := 0.20.2
DENY := $(CACHE)/tools/cargo-deny-$(DENY_VERSION)/bin/cargo-deny
FUZZ_VERSION := 0.13.2
FUZZ := $(CACHE)/tools/cargo-fuzz-$(FUZZ_VERSION)/bin/cargo-fuzz
FUZZ_SECONDS ?= 300
OLD_KUBERNETES := v1.29.15
MDBOOK_VERSION := 0.5.4
MDBOOK := $(CACHE)/tools/mdbook-$(MDBOOK_VERSION)/bin/mdbook
DOCKER ?= docker
# The version stands in Cargo.toml and nowhere else. It is that of the release for the contract v1beta1; the one for v1beta2
# follows from it.
VERSION := v$(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
REGISTRY ?=
TAG ?= $(VERSION)
IMAGE = $(REGISTRY)/manager:$(TAG)
KUBECTL := $(CACHE)/tools/kubernetes-v1.36.4/kubectl
TESTBED = $(CARGO) run --quiet -p capmaas-testbed --bin testbed --
# release, or rel-quick to try things.
PROFILE ?= release

##@ Try it

.PHONY: demo
# Not `cargo run -p`: that resolves features for one package, and compiles many dependencies a second time.
demo: check-machine ## Show the main job end to end on embedded parts (KEEP=1 leaves it running; INVENTORY= and CLUSTER= rehearse yours)
	@echo "The programs are compiled first (about 5 min on two free cores, once); the demo itself takes about 7 min."
	$(TESTBED) tools --demo
	$(CARGO) build --quiet --workspace --bins
	"$${CARGO_TARGET_DIR:-target}/debug/capmaas-demo" $(if $(KEEP),--keep) $(if $(INVENTORY),--inventory "$(INVENTORY)") $(if $(CLUSTER),--cluster "$(CLUSTER)")

##@ Test

.PHONY: test
# Programs and tests in one build: apart, they resolve other features, and the workspace is compiled twice.
test: tools ## The gate: units, simulation, contracts and the leading real scenario of each capability
	$(CARGO) build --workspace --bins --tests
	hack/cargo-test --workspace

.PHONY: test-unit
test-unit: ## All that needs neither root nor Go: decisions, clients, the simulator, the simulation
	hack/cargo-test $(addprefix -p ,capmaas-core capmaas-api capmaas-hot maas-client lxd-client) --lib
	hack/cargo-test -p capmaas-manager --lib --test vms --test clusters --test simulation --test identities --test change_feed

# Optimised, a seed costs a fraction, once it is built: make simulate SEEDS=2000 VM_SEEDS=500 SIMULATE_PROFILE=rel-quick
SIMULATE_PROFILE ?= dev
.PHONY: simulate
simulate: ## Torment the reconcilers under SEEDS=N seeds (200) on all cores, telling how far it is, or replay one with SEED=N
	$(if $(SEEDS),CAPMAAS_SEEDS=$(SEEDS)) $(if $(VM_SEEDS),CAPMAAS_VM_SEEDS=$(VM_SEEDS)) $(if $(SEED),CAPMAAS_SEED=$(SEED)) \
		$(if $(TORMENTS),CAPMAAS_TORMENTS=$(TORMENTS)) \
		$(CARGO) test --profile $(SIMULATE_PROFILE) -p capmaas-manager --test simulation -- --nocapture

.PHONY: test-e2e
test-e2e: check-machine ## Every scenario that an issue names, however long it takes, the matrix of old versions, and MAAS 3.7
	$(TESTBED) tools --scenarios
	$(CARGO) build --workspace --bins --tests --all-features
	hack/cargo-test --workspace --all-features
	$(MAKE) test-matrix
	$(MAKE) test-maas-37

# The other scenarios that use a MAAS (quick_start, rehearsal, release_upgrade, release_assets, plugin_page) prove packages, manifests and
# pages, which do the same with every MAAS; manager_as_shipped, deploy, whole_release, book_examples, helm_chart and contract use none.
.PHONY: test-maas-37
test-maas-37: check-machine ## Every scenario of metal and VMs on real parts once more, against a MAAS 3.7
	$(TESTBED) tools --scenarios
	$(CARGO) build --workspace --bins --tests --all-features
	CAPMAAS_MAAS_VERSION=3.7 hack/cargo-test --workspace --all-features \
		$(addprefix --test ,'metal_*' 'lxd_*' 'real_nodes_*' waiting whole_story workload_cluster)

.PHONY: test-capi
test-capi: tools ## Cluster API's own end-to-end specs against capmaas (FOCUS= names some); which they are is in docs/cluster-api-specs.md
	cd lab/capi-specs && go test -run TestEverySpecIsInTheTable .
	$(CARGO) build --quiet --workspace --bins
	"$${CARGO_TARGET_DIR:-target}/debug/capi-specs" --artifacts "$${CARGO_TARGET_DIR:-target}/capi-specs" $(if $(FOCUS),--focus "$(FOCUS)")

.PHONY: test-matrix
test-matrix: tools ## The proofs of the API on Kubernetes 1.29 with the two older Cluster API cores
	CAPMAAS_KUBERNETES=$(OLD_KUBERNETES) hack/cargo-test --workspace --all-features --test api_server
	CAPMAAS_KUBERNETES=$(OLD_KUBERNETES) hack/cargo-test --workspace --all-features --test contract -- --skip cluster_api_v1_14

.PHONY: bench
bench: tools ## Measure our manager: N= machines (10,100), beside it PROVIDER= another command line, CRDS= its CRDs, BENCH_ARGS= (see bench run --help)
	$(CARGO) build --quiet --profile rel-quick -p capmaas-manager -p capmaas-bench --bins
	"$${CARGO_TARGET_DIR:-target}/rel-quick/bench" run $(if $(PROVIDER),--against "$(PROVIDER)" --against-crds "$(CRDS)") --machines $(or $(N),10,100) $(BENCH_ARGS)
	"$${CARGO_TARGET_DIR:-target}/rel-quick/bench" situations $(if $(PROVIDER),--provider "$(PROVIDER)") --crds $(or $(CRDS),config/crd)
	"$${CARGO_TARGET_DIR:-target}/rel-quick/bench" tenants $(if $(PROVIDER),--provider "$(PROVIDER)") --crds $(or $(CRDS),config/crd)

.PHONY: bench-floor
bench-floor: tools ## What the API server alone takes for N= machines (1000) and the writes of a provider, to compare make bench with
	$(CARGO) build --quiet --profile rel-quick -p capmaas-manager -p capmaas-bench --bins
	"$${CARGO_TARGET_DIR:-target}/rel-quick/bench" floor --crds $(or $(CRDS),config/crd) --machines $(or $(N),1000) $(BENCH_ARGS)

.PHONY: bench-check
bench-check: ## Count the instructions of hot functions; fails when one needs a tenth more than recorded (RECORD=1 records)
	$(TESTBED) tools --set test-packages
	$(CARGO) build --quiet --workspace --bin xtask
	$(CARGO) build --quiet --profile counted -p capmaas-hot
	"$${CARGO_TARGET_DIR:-target}/debug/xtask" instructions --hot "$${CARGO_TARGET_DIR:-target}/counted/hot" $(if $(RECORD),--record)

.PHONY: soak
soak: tools ## Churn with faults and kills for SECONDS= (1800), SEED= to repeat one; at the end MAAS and Kubernetes must agree exactly
	$(CARGO) build --quiet --profile rel-quick -p capmaas-manager -p capmaas-bench --bins
	"$${CARGO_TARGET_DIR:-target}/rel-quick/bench" soak --seconds $(or $(SECONDS),1800) $(if $(SEED),--seed $(SEED))

.PHONY: fuzz
fuzz: $(FUZZ) ## Fuzz what decodes MAAS's answers, FUZZ_SECONDS for each target (needs a nightly toolchain)
	@rustup run nightly rustc --version >/dev/null 2>&1 || { echo "Fuzzing needs a nightly compiler: run 'rustup toolchain install nightly'." >&2; exit 1; }
	cd crates/maas && for target in answers texts; do \
	  PATH="$(dir $(FUZZ)):$$PATH" cargo +nightly fuzz run "$$target" -- -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done

.PHONY: check-machine
check-machine: ## Say what this machine lacks for the demo and the tests
	@hack/check-machine

.PHONY: tools
tools: check-machine ## Build, download or install all that the tests start: API server, Cluster API, LXD (cached, shown while it builds)
	$(TESTBED) tools

.PHONY: node-image
node-image: tools ## Make the image of nodes that really boot, which make test-e2e and make demo do where they need it (minutes, once)
	$(TESTBED) tools --set node-image

##@ Develop

.PHONY: manifests
manifests: $(KUBECTL) ## Generate config/crd, docs/reference, templates, metadata.yaml and what charts/capmaas takes from config
	$(CARGO) run --quiet -p capmaas-api --bin crdgen -- config/crd docs/reference
	$(CARGO) run --quiet -p xtask -- generate --kubectl $(KUBECTL)

$(KUBECTL):
	$(TESTBED) tools --set kubernetes-v1.36.4

GENERATED := config/crd docs/reference templates metadata.yaml charts

.PHONY: check-generated
check-generated: ## Fail when a generated file is stale
	$(MAKE) --no-print-directory manifests
	@git diff --exit-code -- $(GENERATED) || { echo "Generated files are stale: run 'make manifests' and commit the result." >&2; exit 1; }
	@untracked="$$(git ls-files --others --exclude-standard -- $(GENERATED))"; [ -z "$$untracked" ] || { echo "generated but not committed: $$untracked" >&2; exit 1; }

.PHONY: book
book: $(MDBOOK) ## The book, into target/book
	$(MDBOOK) build docs

.PHONY: fmt
fmt: ## Format the code
	$(CARGO) fmt --all

.PHONY: lint
lint: ## Formatting and clippy, warnings denied
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --all-features -- -D warnings

.PHONY: deny
deny: $(DENY) ## Licences, banned crates and sources of every dependency
	$(DENY) --all-features check --hide-inclusion-graph licenses bans sources

.PHONY: advisories
advisories: $(DENY) ## Known weaknesses of every dependency; the database comes from the network, so this is no part of the gate
	$(DENY) --all-features check advisories

$(DENY):
	@echo "Installing cargo-deny $(DENY_VERSION) into the tool cache (a few minutes, once) ..."
	env -u CARGO_TARGET_DIR $(CARGO) install --quiet --locked cargo-deny --version $(DENY_VERSION) --root $(dir $(patsubst %/,%,$(dir $(DENY))))

$(MDBOOK):
	@echo "Installing mdBook $(MDBOOK_VERSION) into the tool cache (a few minutes, once) ..."
	env -u CARGO_TARGET_DIR $(CARGO) install --quiet --locked mdbook --version $(MDBOOK_VERSION) --no-default-features --features search --root $(dir $(patsubst %/,%,$(dir $(MDBOOK))))

$(FUZZ):
	@echo "Installing cargo-fuzz $(FUZZ_VERSION) into the tool cache (once) ..."
	env -u CARGO_TARGET_DIR $(CARGO) install --quiet --locked cargo-fuzz --version $(FUZZ_VERSION) --root $(dir $(patsubst %/,%,$(dir $(FUZZ))))

##@ Use it

.PHONY: install
install: ## Install the CRDs (and the template policy where it is served) into the cluster of your kubeconfig
	hack/install-crds

.PHONY: deploy
deploy: ## Install capmaas into the cluster of your kubeconfig (REGISTRY= TAG= choose the image, NAMESPACE=x limits it to one namespace)
	@test -n "$(REGISTRY)" || { echo "REGISTRY is missing: make deploy REGISTRY=<your-registry> TAG=<your-tag> names the images that you pushed there (make images, make docker-push)" >&2; exit 1; }
	IMAGE="$(IMAGE)" AGENT_IMAGE="$(REGISTRY)/lxd-initializer:$(TAG)" NAMESPACE="$(NAMESPACE)" hack/deploy

.PHONY: undeploy
undeploy: ## Take the manager away again; the CRDs and every object stay (NAMESPACE=x as for deploy)
	NAMESPACE="$(NAMESPACE)" hack/undeploy

##@ Release

.PHONY: images
images: ## Images of manager and agent without a container daemon: an OCI layout in dist/images (ARCHS="amd64 arm64")
	REGISTRY="$(REGISTRY)" TAG="$(TAG)" PROFILE="$(PROFILE)" hack/images $(or $(ARCHS),amd64)

.PHONY: docker-build
docker-build: check-docker ## The manager's image with Docker (or DOCKER=podman)
	@test -n "$(REGISTRY)" || { echo "REGISTRY is missing: make docker-build REGISTRY=<your-registry> names the image" >&2; exit 1; }
	$(DOCKER) build --file Dockerfile --tag "$(IMAGE)" .

.PHONY: docker-push
docker-push: ## Build the manager's image and push it to REGISTRY= with TAG=
	@test -n "$(REGISTRY)" || { echo "REGISTRY is missing: make docker-push REGISTRY=<your-registry> TAG=<your-tag>" >&2; exit 1; }
	$(MAKE) --no-print-directory docker-build
	$(DOCKER) push "$(IMAGE)"

.PHONY: check-docker
check-docker:
	@command -v $(DOCKER) >/dev/null 2>&1 || { echo "$(DOCKER) is not installed: install it, set DOCKER=podman, or make images without it: make images" >&2; exit 1; }
	@$(DOCKER) info >/dev/null 2>&1 || { echo "$(DOCKER) has no daemon to talk to: start it, set DOCKER=podman, or make images without it: make images" >&2; exit 1; }

.PHONY: release
release: $(KUBECTL) ## A whole release into dist/release: REGISTRY= says where the images will be, KEY= signs, DOWNLOADS= for krew (ARCHS="amd64 arm64")
	@test -n "$(REGISTRY)" || { echo "REGISTRY is missing (clusterctl takes no image that does not say where it is): make release REGISTRY=<your-registry>" >&2; exit 1; }
	PATH="$(dir $(KUBECTL)):$$PATH" REGISTRY="$(REGISTRY)" TAG="$(TAG)" PROFILE="$(PROFILE)" KEY="$(KEY)" DOWNLOADS="$(DOWNLOADS)" \
		hack/release $(or $(ARCHS),amd64 arm64)

.PHONY: version
version: ## The version of this checkout
	@echo $(VERSION)

.PHONY: picture
picture: ## Draw a recorded demo, LOG=<file> that `make demo` wrote, into docs/pictures/demo.svg
	@test -r "$(LOG)" || { echo "LOG is missing: make demo >demo.log, then make picture LOG=demo.log" >&2; exit 1; }
	hack/demo-log "$(LOG)" | $(CARGO) run --quiet -p xtask -- picture --title "make demo" >docs/pictures/demo.svg

.PHONY: help
help:
	@awk 'BEGIN {FS = ":.*##"} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*##/ {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
