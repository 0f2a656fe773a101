# Everything a developer runs. `make help` lists the targets; scripts live in hack/.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -o errexit -o nounset -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

OUTPUT := _output
GO ?= go
# Packages tested at once. Two suit a machine with two cores.
TEST_PARALLEL ?= 2
# Time limit of one test package.
UNIT_TIMEOUT ?= 10m
INTEGRATION_TIMEOUT ?= 20m
E2E_TIMEOUT ?= 30m
# Tests of test/adoption and test/install that `make test` leaves to `make test-full`, so that a second run takes a quarter of an hour.
E2E_SKIP ?= ^(TestExternalEtcd|TestEmbeddedEtcd|TestSickAnnex|TestReplicaStopsUnderLoad|TestStoppingChangesNoRoute|TestManagedFieldsOfARemovedVersion|TestNamespaceDeletion|TestDefinitionIsDeleted|TestDependentsSurvive|TestOwnersOfAnUnservedVersion|TestKillDuringRelease|TestPurge|TestPurgeIsRefused|TestRefusesSmallQuota|TestRefusesUnreachable|TestRefusesForeignVersion|TestReleaseOfNewObjects|TestReleaseWithConversion|TestReleaseKeepsDependents|TestStrayWritesHoldARelease|TestFinalizerRemovedByHand|TestReturningWatchersOfARelease|TestPrivateRouteCloses|TestOpenAPIStays)$$
# More arguments for `go test`, for example TEST_ARGS='-run TestWatch -v'.
TEST_ARGS ?=
# Arguments of the demonstration, see `make demo DEMO_ARGS=--help`.
DEMO_ARGS ?=
# Arguments of the benchmark, see `make bench BENCH_ARGS=--help`.
BENCH_ARGS ?=
# The version that /version and --version show: the Kubernetes version whose behaviour annex has, then our own, in
# the form that clients know from other distributions.
KUBE_VERSION = $(shell $(GO) list -m -f '{{.Version}}' k8s.io/apiserver | sed 's/^v0/v1/')
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS = -X k8s.io/component-base/version.gitVersion=$(KUBE_VERSION)+annex.$(VERSION)
IMAGE ?= annex:dev

##@ General

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Build and run

.PHONY: build
build: ## Build annex-apiserver, annex-controller and kubectl-annex into _output/bin.
	$(GO) build -ldflags '$(LDFLAGS)' -o $(OUTPUT)/bin/ ./cmd/...

.PHONY: kubernetes
kubernetes: ## Build kube-apiserver, kube-controller-manager, kubectl, helm and etcd from their modules.
	@hack/build-kubernetes.sh

.PHONY: run
run: build ## Start annex alone with sample objects and keep serving until Ctrl-C.
	@hack/run.sh

.PHONY: demo
demo: build kubernetes ## Move two groups of a real cluster into annex and one back; takes some minutes, ends by itself.
	@$(GO) build -o $(OUTPUT)/bin/ ./hack/demo
	@$(OUTPUT)/bin/demo $(DEMO_ARGS)

.PHONY: image
image: ## Build the container image with all three programs (needs docker).
	docker build --build-arg VERSION='$(VERSION)' --tag $(IMAGE) .

##@ Test

.PHONY: test
test: test-unit test-integration test-conformance test-e2e ## Run unit, integration, conformance and end-to-end tests.

.PHONY: test-unit
test-unit: ## Run the tests beside the code, with the race detector.
	$(GO) build -race ./pkg/... ./cmd/... ./hack/...
	@echo "# upstream's storage suites wait at most 150 ms for an event, so nothing else runs beside them"
	$(GO) test -race -p 1 -timeout $(UNIT_TIMEOUT) $(TEST_ARGS) ./pkg/storage/...
	$(GO) test -race -p $(TEST_PARALLEL) -timeout $(UNIT_TIMEOUT) $(TEST_ARGS) $$($(GO) list ./pkg/... ./cmd/... ./hack/... | grep --invert-match /pkg/storage/)

.PHONY: test-integration
test-integration: ## Run annex inside the test process against real etcd, with the race detector.
	$(GO) test -race -p $(TEST_PARALLEL) -timeout $(INTEGRATION_TIMEOUT) $(TEST_ARGS) $$($(GO) list ./test/integration/... | grep --invert-match '/compact$$')
	@echo "# thousands of answers are compared here; make test-full does it with the race detector too"
	$(GO) test -timeout $(INTEGRATION_TIMEOUT) $(TEST_ARGS) ./test/integration/compact

# Every other package below test/, but for test-kill. They start built programs, which the test cache does not
# see, hence -count=1; and each starts whole control planes, hence one at a time.
.PHONY: test-e2e
test-e2e: build kubernetes ## Run annex behind a real kube-apiserver, as processes.
	@packages=$$($(GO) list ./test/... | grep --invert-match --extended-regexp '/test/(integration|adoption/kill)(/|$$)'); \
	echo "$(GO) test -count=1 -p 1 -timeout $(E2E_TIMEOUT) $(TEST_ARGS) <packages below test/>"; \
	$(GO) test -count=1 -p 1 -timeout $(E2E_TIMEOUT) -skip '$(E2E_SKIP)' $(TEST_ARGS) $${packages}

.PHONY: test-kill
test-kill: build kubernetes ## Kill every part of annex and of a cluster in every phase of a move.
	ANNEX_ALL_KILLS=1 $(GO) test -count=1 -p 1 -timeout 60m $(TEST_ARGS) -run 'Kill|Leader' ./test/adoption ./test/adoption/kill

.PHONY: test-skew
test-skew: build kubernetes ## Run the smoke suite against kube-apiserver 1.34, the oldest that annex works with.
	@hack/test-skew.sh -timeout $(E2E_TIMEOUT) $(TEST_ARGS)

.PHONY: test-conformance
test-conformance: ## Run upstream's CustomResourceDefinition suite against annex.
	@hack/conformance.sh

.PHONY: test-full
test-full: test ## Run all tests, then those again that make test runs without the race detector, with it, then the long ones.
	@hack/conformance.sh --race
	@$(GO) test -race -count=1 -timeout 60m $(TEST_ARGS) ./test/integration/compact
	@ANNEX_FEATURE_GATES=CompactCache=false hack/conformance.sh
	@ANNEX_FEATURE_GATES=CompactCache=false $(GO) test -count=1 -p 1 -timeout $(E2E_TIMEOUT) $(TEST_ARGS) $$($(GO) list ./test/integration/... | grep --invert-match '/compact$$') ./test/parity ./test/corpus
	@ANNEX_REBUILD_OBJECTS=200000 $(MAKE) test-e2e TEST_ARGS='-race $(TEST_ARGS)' E2E_TIMEOUT=60m E2E_SKIP=none
	@$(MAKE) test-kill
	@$(MAKE) demo DEMO_ARGS=--readme=README.md
	@$(MAKE) bench-smoke

##@ Measure

.PHONY: bench
bench: build kubernetes ## Compare annex with kube-apiserver at full size, which takes 25 minutes on two idle cores. The report goes to _output/bench.
	@$(GO) build -o $(OUTPUT)/bin/ ./test/bench
	@exec $(OUTPUT)/bin/bench $(BENCH_ARGS)

.PHONY: bench-smoke
bench-smoke: build kubernetes ## The same at a fifth of the size in a few minutes; one JSON line a scenario.
	@$(GO) build -o $(OUTPUT)/bin/ ./test/bench
	@exec $(OUTPUT)/bin/bench --smoke $(BENCH_ARGS)

.PHONY: bench-docs
bench-docs: ## Write the report of the last make bench into docs/benchmarks.md and the table of README.md.
	@$(GO) build -o $(OUTPUT)/bin/ ./test/bench
	@exec $(OUTPUT)/bin/bench --publish $(BENCH_ARGS)

##@ Before a commit

.PHONY: generate
generate: ## Regenerate code and reference pages.
	@hack/update-codegen.sh
	@hack/update-docs.sh

.PHONY: verify
verify: ## Run every hack/verify-*.sh and list the failures.
	@hack/verify-all.sh

.PHONY: fix
fix: ## Mend what can be mended: format, imports, lint, licence headers, go.mod.
	@status=0; for script in hack/fix-*.sh; do echo "$${script}"; "$${script}" || status=1; done; exit $${status}

##@ Clean

.PHONY: clean
clean: ## Remove built annex programs and tools, keep the Kubernetes build.
	rm -rf $(OUTPUT)/bin $(OUTPUT)/static $(OUTPUT)/tools $(OUTPUT)/lint

.PHONY: clean-all
clean-all: ## Remove all of _output; the Kubernetes build takes 12 minutes to come back.
	rm -rf $(OUTPUT)
