#!/bin/bash
# Installs Debian packages as root or through sudo without a password: apt_install.sh PACKAGE...
# Exit 1, without a word, where that is not possible here; the caller then has another way.
set -euo pipefail
command -v apt-get >/dev/null || exit 1
if [ "$(id -u)" -eq 0 ]; then
    as_root=(env)
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root=(sudo -n env)
else
    exit 1
fi
echo "installing with apt-get: $*" >&2
"${as_root[@]}" apt-get -qq update
"${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends --yes "$@" >/dev/null
