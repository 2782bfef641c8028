# `make demo` and `make test` are the two commands to know; each does the set-up first.

# Where rustup puts cargo, for the first run after the set-up installed it.
export PATH := $(PATH):$(HOME)/.cargo/bin
# RUSTFLAGS would replace the flags in .cargo/config.toml, and with them the run path of libz3.
unexport RUSTFLAGS RUSTDOCFLAGS

.PHONY: setup guests

setup:
	@scripts/setup.sh

guests: setup
	@$(MAKE) --no-print-directory -C guest-images
