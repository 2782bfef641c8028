# `make demo` and `make test` are the two commands to know; each does the set-up first.

export PATH := $(PATH):$(HOME)/.cargo/bin
# RUSTFLAGS would replace the flags in .cargo/config.toml, and with them the run path of libz3.
unexport RUSTFLAGS

.PHONY: setup

setup:
	@scripts/setup.sh
