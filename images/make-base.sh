#!/bin/sh
# Make a Debian 12 root file system as a tar, from Debian's packages alone: for machines that reach a
# Debian mirror but no image registry. Needs root and debootstrap.
#
#   images/make-base.sh OUT.tar [PACKAGE...]
#   docker import --change 'CMD ["bash"]' OUT.tar debian:bookworm-slim
#
# The mirror is the one that this machine's apt uses, or $DEBIAN_MIRROR.
set -eu

suite=bookworm
default_mirror=http://deb.debian.org/debian

if [ $# -lt 1 ]; then
    echo "usage: $0 OUT.tar [PACKAGE...]" >&2
    exit 2
fi
out=$1
shift

if [ "$(id -u)" != 0 ]; then
    echo "$0: must be root (debootstrap makes device nodes and changes root)" >&2
    exit 1
fi
if ! command -v debootstrap >/dev/null; then
    echo "$0: debootstrap is missing: apt-get install debootstrap" >&2
    exit 1
fi

# The first http(s) URI that names this suite, in either of apt's two formats.
configured_mirror() {
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
        awk -v suite="$suite" '$1 == "deb" {
            for (i = 2; i < NF; i++) if ($i ~ /^https?:/ && $(i + 1) == suite) { print $i; exit }
        }'
    cat /etc/apt/sources.list.d/*.sources 2>/dev/null |
        awk -v suite="$suite" '
            function flush() { if (uri != "" && index(" " suites " ", " " suite " ")) print uri; uri = suites = "" }
            /^[ \t]*$/ { flush(); next }
            /^URIs:/ { uri = $2 }
            /^Suites:/ { $1 = ""; suites = $0 }
            END { flush() }'
}

mirror=${DEBIAN_MIRROR:-$(configured_mirror | head -n 1)}
mirror=${mirror:-$default_mirror}

root=$(mktemp -d "${TMPDIR:-/var/tmp}/coderig-base.XXXXXX")
trap 'rm -rf "$root"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

include=ca-certificates
for package in "$@"; do
    include="$include,$package"
done

echo "debootstrap $suite with $include" >&2
debootstrap --variant=minbase --include="$include" "$suite" "$root" "$mirror" >&2

# What a container has no use for.
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/var/log/*.log \
    "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/info/* "$root"/usr/share/locale/*
rm -f "$root/etc/resolv.conf" "$root/etc/hostname"
# Services must not start when a package is installed in a container.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"

tar --create --numeric-owner --xattrs --exclude=./dev/* --exclude=./proc/* --exclude=./sys/* \
    --directory "$root" --file "$out.part" .
mv "$out.part" "$out"
