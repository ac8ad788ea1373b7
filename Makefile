# make demo shows the engine at work; make test runs the tests; make check is what a change has to pass.
GO ?= go
FUZZTIME ?= 20s
COUNT ?= 10

.PHONY: demo build test race vet check fuzz soak model bench

demo:
	$(GO) run ./cmd/belfry demo

build:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w' -o belfry ./cmd/belfry

# Without a server or a command that it needs, a test says so and is skipped.
test:
	-@.ci/needs cc curl pg_ctlcluster redis-server
	$(GO) test ./...

# The race detector makes SQLite some fifteen times slower, so this runs the short form of the long tests.
race:
	@.ci/needs cc
	CGO_ENABLED=1 $(GO) test -race -short ./...

vet:
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not formatted: $$unformatted"; exit 1; }
	$(GO) vet ./...

check: vet test race

fuzz:
	@for p in $$($(GO) list ./...); do for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
		echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p || exit 1; done; done

soak: # all of the contract on PostgreSQL, and random histories that nobody has seen yet
	$(GO) test ./store/postgres -timeout 4h -storetest.all
	$(GO) test ./store/sqlite ./store/postgres -run 'TestStore/Histories' -count $(COUNT) -timeout 4h -storetest.new

model: # minutes, and some GB of memory
	$(GO) test ./internal/model -timeout 2h -v -model.long

bench:
	$(GO) run ./cmd/belfry bench
