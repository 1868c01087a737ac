# `make run` brings the service up; `make test` is what CI runs.

.PHONY: run test faults bench bench-quick lint openapi sqlx

# The pages are for those who work on the code, so they show and name what is private.
DOCFLAGS = -D warnings -A rustdoc::private-intra-doc-links

run:
	cargo run --release

# Everything that must hold, on a machine that has cargo: installs what the tests need besides,
# then checks format, lints, the build, the tests and the documentation.
test:
	bash tests/install.sh
	cargo fmt --check
	SQLX_OFFLINE=true cargo clippy --all-targets -- -D warnings
	SQLX_OFFLINE=true tests/with-postgres.sh cargo nextest run
	SQLX_OFFLINE=true RUSTDOCFLAGS="$(DOCFLAGS)" cargo doc --no-deps --document-private-items --quiet
	tests/with-postgres.sh bash tests/sqlx-is-current.sh

# Kills servers and Postgres at random moments, fifty rounds of it; `make test` has five.
# PAGETIDE_FAULT_SEED=0x… PAGETIDE_FAULT_ROUNDS=1 repeats a round.
faults: export PAGETIDE_FAULT_ROUNDS ?= 50
faults:
	bash tests/install.sh
	SQLX_OFFLINE=true tests/with-postgres.sh cargo nextest run --profile faults --no-capture -E 'test(faults::rounds)'

# Measures the program against its limits and peers, and prints a table; for figures that mean
# something, on a machine that does nothing else. CASES="engine growth" measures some.
bench:
	bash benches/install.sh
	SQLX_OFFLINE=true cargo bench --bench bench -- $(CASES)

# The same in a few minutes, with short runs and small tables.
bench-quick:
	bash benches/install.sh
	SQLX_OFFLINE=true cargo bench --bench bench -- --quick $(CASES)

lint:
	cargo fmt
	SQLX_OFFLINE=true cargo clippy --all-targets -- -D warnings

# Writes openapi.yaml from the code.
openapi:
	SQLX_OFFLINE=true cargo run --quiet -- openapi > openapi.yaml

# Writes .sqlx, the checked statements that a build without a database needs.
sqlx:
	tests/with-postgres.sh bash tests/sqlx-is-current.sh --write
