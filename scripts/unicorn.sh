#!/usr/bin/env bash
# Fetches Unicorn, the emulator that `cargo bench --bench mips` compares with, into .deps/ (git-ignored). Nothing else
# needs it: the bench opens its library at run time, and goes without where it is not there.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly wheel=unicorn==2.1.4
readonly sha256=9d6e6dea140560de4ebd8446661f7ef84a357d428c14a3ef09dacd306ec8c239
readonly dir=.deps/unicorn-2.1.4

[ -e "$dir" ] && exit
echo "fetching $wheel" >&2
mkdir -p .deps
tmp=$(mktemp -d .deps/unpack.XXXXXX)
trap 'rm -rf "$tmp"' EXIT
echo "$wheel --hash=sha256:$sha256" >"$tmp/requirements.txt"
python3 -m pip --quiet download --no-deps --only-binary=:all: --require-hashes \
    --requirement "$tmp/requirements.txt" --dest "$tmp"
python3 -m zipfile -e "$tmp"/*.whl "$tmp/wheel"
mkdir "$tmp/unicorn"
mv "$tmp/wheel/unicorn/lib/libunicorn.so.2" "$tmp/unicorn/"
mv "$tmp/unicorn" "$dir" # last, so that the directory exists only when it is whole
