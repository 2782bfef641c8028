# `make demo` and `make test` are the two commands to know; each does the set-up first.

# Where rustup puts cargo, for the first run after the set-up installed it.
export PATH := $(PATH):$(HOME)/.cargo/bin
# RUSTFLAGS would replace the flags in .cargo/config.toml, and with them the run path of libz3.
unexport RUSTFLAGS RUSTDOCFLAGS

.PHONY: demo test services long-test page setup guests unicorn

demo: guests
	cargo build --release --locked
	@scripts/demo.sh

test: guests
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo test --workspace --locked
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check bans licenses sources; \
	else echo "skipped: deny.toml is not checked, since cargo-deny is not installed"; fi

# Servers of Debian, installed first, natively and recorded.
services: guests
	cargo build --release --locked
	@scripts/services.sh --install

# Ten million random cases of the semantics against this processor, and all directed ones.
long-test: setup
	cargo run --release --locked -p x86-oracle -- --cases 10000000
	cargo run --release --locked -p x86-oracle -- --directed

# docs/instructions.md: what has semantics, and how often it was tested; docs/syscalls.md: which calls are served.
page: setup
	cargo run --quiet --locked -p x86-oracle -- --page x86/oracle/runs >target/instructions.md
	mv target/instructions.md docs/instructions.md
	cargo run --quiet --locked -p vmm --example syscalls_page >target/syscalls.md
	mv target/syscalls.md docs/syscalls.md

setup:
	@scripts/setup.sh

# The emulator that `cargo bench --bench mips` compares with.
unicorn:
	@scripts/unicorn.sh

guests: setup
	@$(MAKE) --no-print-directory -C guest-images
