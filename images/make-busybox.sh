#!/bin/sh
# Make a root file system that holds busybox and nothing else, as a tar, from Debian's package
# busybox-static. Needs apt-get (with its lists) and dpkg-deb, but neither root nor a registry.
#
#   images/make-busybox.sh OUT.tar
#   docker import --change 'CMD ["sh"]' OUT.tar busybox:stable
set -eu

if [ $# -ne 1 ]; then
    echo "usage: $0 OUT.tar" >&2
    exit 2
fi
out=$1

work=$(mktemp -d "${TMPDIR:-/var/tmp}/coderig-busybox.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# apt drops root for downloads, and its user must be able to write here.
chmod 755 "$work"
mkdir -m 777 "$work/deb"
(cd "$work/deb" && apt-get download -q busybox-static >&2)
dpkg-deb -x "$work"/deb/*.deb "$work/package"

root=$work/root
mkdir -p "$root/bin" "$root/dev" "$root/etc" "$root/proc" "$root/sys" "$root/root" "$root/usr/bin"
mkdir -m 1777 "$root/tmp"
cp "$(find "$work/package" -type f -path '*/bin/busybox')" "$root/bin/busybox"
chmod 755 "$root/bin/busybox"
"$root/bin/busybox" --list | while read -r applet; do
    [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
done
ln -s ../../bin/env "$root/usr/bin/env"
printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"

tar --create --numeric-owner --owner=0 --group=0 --directory "$root" --file "$out.part" .
mv "$out.part" "$out"
