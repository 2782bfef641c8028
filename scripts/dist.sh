#!/usr/bin/env bash
# target/dist: all that an installed gretel is, laid out as below a prefix (bin, lib, share). `make install` and the Debian package
# copy it. The command looks for libz3 in lib/gretel beside itself, and nowhere in this checkout: hence a build of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly build=target/dist-build
readonly dist=target/dist
readonly new=$dist.new

die() { echo "dist: $*" >&2; exit 1; }

# The file of the library that the command needs: of the wheel that `make setup` unpacked, else of the system.
libz3() {
    local lib
    lib=$(sed -n 's/^PKG_CONFIG_PATH = { value = "\(.*\)\/pkgconfig".*/\1\/lib/p' .cargo/config.toml)
    if [ -n "$lib" ]; then echo "$lib/$1"; else ldd "$new/bin/gretel" | awk -v name="$1" '$1 == name { print $3 }'; fi
}

[ -e .cargo/config.toml ] || die "there is no .cargo/config.toml; run \`make setup\` first"
# These flags replace those of .cargo/config.toml, and with them the run path to this checkout.
RUSTFLAGS='-C link-arg=-Wl,-rpath,$ORIGIN/../lib/gretel' \
    cargo build --release --locked --package gretel --target-dir "$build"

rm -rf "$new"
mkdir -p "$new/bin"
strip --strip-debug -o "$new/bin/gretel" "$build/release/gretel"
name=$(readelf -d "$new/bin/gretel" | sed -n 's/.*(NEEDED).*\[\(libz3\.so[^]]*\)\].*/\1/p')
library=$(libz3 "$name")
[ -e "$library" ] || die "cannot find ${name:-libz3}, which the command is linked with; run \`make setup\`"
install -D -m 644 "$library" "$new/lib/gretel/$name"

# Made by the command itself, with nothing of this checkout in its environment: it could not start without its library.
gretel() { env -i "$new/bin/gretel" "$@"; }
gretel man "$new/share/man/man1"
completions() { mkdir -p "$new/share/$2" && gretel completions "$1" >"$new/share/$2/$3"; }
completions bash bash-completion/completions gretel
completions zsh zsh/site-functions _gretel
completions fish fish/vendor_completions.d gretel.fish
completions elvish elvish/lib gretel.elv

install -D -m 644 -t "$new/share/doc/gretel" LICENSE README.md
install -D -m 644 -t "$new/share/doc/gretel/docs" docs/*.md
install -D -m 644 -t "$new/share/doc/gretel/docs/decisions" docs/decisions/*.md
install -D -m 644 -t "$new/share/doc/gretel/docs/images" docs/images/*
install -D -m 644 -t "$new/share/gretel/vscode" packaging/vscode/*
python3 scripts/vsix.py "$new/share/gretel/gretel.vsix"
chmod -R u=rwX,go=rX "$new"
rm -rf "$dist"
mv "$new" "$dist" # last, so that it exists only when it is whole
