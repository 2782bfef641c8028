# shellcheck shell=bash disable=SC2034,SC2154
# What scripts that record and replay programs share: which engines there are, and where gretel and its recordings are. Sourced by them, with
# $engine, $gretel and $out as their arguments have set them, and a function `die`; sets `engines`, and makes the two paths whole.

case $engine in
soft | kvm | auto) engines=("$engine") ;;
both)
    engines=(soft)
    device=${GRETEL_KVM_DEVICE:-/dev/kvm}
    if [ -r "$device" ] && [ -w "$device" ]; then
        engines+=(kvm)
    else
        echo "skipped: engine kvm, since this user cannot open $device" >&2
    fi
    ;;
*) die "--engine takes soft, kvm, auto or both, not $engine" ;;
esac
[ -x "$gretel" ] || die "$gretel is not there: build it, or name another with --gretel"
gretel=$(realpath "$gretel")
mkdir -p "$out"
out=$(realpath "$out")
