# `make demo` and `make test` are the two commands to know; each does the set-up first.

# Where rustup puts cargo, for the first run after the set-up installed it.
export PATH := $(PATH):$(HOME)/.cargo/bin
# RUSTFLAGS would replace the flags in .cargo/config.toml, and with them the run path of libz3.
unexport RUSTFLAGS RUSTDOCFLAGS

.PHONY: demo test services kernel kernel-crash hosts long-test page setup guests unicorn install uninstall deb

# Where `make install` installs. DESTDIR is put in front of it, for packages.
PREFIX ?= /usr/local

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

# Debian's kernel, fetched first, booted into a shell, recorded and replayed.
kernel: guests
	cargo build --release --locked
	@scripts/kernel-boot.sh

# The same kernel crashed by modules of our own, replayed, and taken back in gdb to the instruction that faulted.
kernel-crash: guests
	cargo build --release --locked
	@scripts/kernel-crash.sh

# The tests of KVM on processors with SVM and with VMX, which are emulated; as root. The head of the script has what it needs, a Bochs of
# one's own among it.
BOCHS ?= bochs
hosts: guests
	@scripts/hosts.sh svm
	@scripts/hosts.sh vmx --bochs $(BOCHS)

# Ten million random cases of the semantics against this processor, all directed ones, and random programs on compiled code against
# the interpreter for half an hour (RANDOM_SECONDS; RANDOM_SEED is the first program's number).
long-test: setup
	cargo run --release --locked -p x86-oracle -- --cases 10000000
	cargo run --release --locked -p x86-oracle -- --directed
	cargo test --release --locked -p x86-jit --test random -- --ignored --nocapture

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

# All that is installed, below target/dist. Made anew when a source is newer, so that `sudo make install` builds nothing.
target/dist: $(shell find Cargo.toml Cargo.lock LICENSE README.md docs packaging scripts/dist.sh scripts/vsix.py src x86 lbr vmm board synth -type f)
	@$(MAKE) --no-print-directory setup
	scripts/dist.sh

install: target/dist
	cd target/dist && find . -type f -exec install -D -m 644 {} $(abspath $(DESTDIR)$(PREFIX))/{} \;
	chmod 755 $(DESTDIR)$(PREFIX)/bin/gretel

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/gretel $(DESTDIR)$(PREFIX)/share/man/man1/gretel.1
	rm -f $(DESTDIR)$(PREFIX)/share/man/man1/gretel-*.1
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/gretel
	rm -f $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_gretel
	rm -f $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/gretel.fish
	rm -f $(DESTDIR)$(PREFIX)/share/elvish/lib/gretel.elv
	rm -rf $(DESTDIR)$(PREFIX)/lib/gretel $(DESTDIR)$(PREFIX)/share/doc/gretel $(DESTDIR)$(PREFIX)/share/gretel

# target/debian/gretel_VERSION_amd64.deb; needs `cargo install cargo-deb`.
deb: target/dist
	scripts/deb.sh
