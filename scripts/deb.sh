#!/usr/bin/env bash
# target/debian/gretel_VERSION_amd64.deb, of target/dist. cargo-deb asks dpkg-shlibdeps which packages the command needs, and that
# refuses a library of the package's own, so Cargo.toml names them; which libc is old enough only the built files tell.
set -euo pipefail
cd "$(dirname "$0")/.."

die() { echo "deb: $*" >&2; exit 1; }

cargo deb --version >/dev/null 2>&1 || die "cargo-deb is not installed: cargo install cargo-deb"
work=$(mktemp -d target/deb.XXXXXX)
trap 'rm -rf "$work"' EXIT

# It is packed again below: that packing is the one that is to be small.
cargo deb --no-build --no-strip --fast --locked --quiet --output "$work"
package=$(basename "$work"/*.deb)
libc=$(readelf --wide --version-info target/dist/bin/gretel target/dist/lib/gretel/* |
    grep -o 'GLIBC_[0-9.]*' | sort --unique --version-sort | tail -n 1)
dpkg-deb --raw-extract "$work/$package" "$work/unpacked"
sed -i "s/^\(Depends: libc6\),/\1 (>= ${libc#GLIBC_}),/" "$work/unpacked/DEBIAN/control"
grep -q "^Depends: libc6 (>= 2" "$work/unpacked/DEBIAN/control" || die "no version of libc6 in the package's Depends"
# Debian's zsh looks there for what packages bring, and in site-functions of /usr/local alone.
mv "$work/unpacked/usr/share/zsh/site-functions" "$work/unpacked/usr/share/zsh/vendor-completions"
sed -i 's|usr/share/zsh/site-functions/|usr/share/zsh/vendor-completions/|' "$work/unpacked/DEBIAN/md5sums"
mkdir -p target/debian
dpkg-deb --root-owner-group --build "$work/unpacked" "target/debian/$package"
