#!/bin/bash
# Unpacks Debian packages, and all that they depend on, into a folder, as an ordinary user: apt_fetch.sh FOLDER PACKAGE...
# Nothing is installed into the system. apt gets private state and an empty list of installed packages, so that it fetches
# the whole closure (C library included) and the folder can serve as a sysroot.
set -euo pipefail
folder=$(realpath -m "$1") # apt takes a relative path as one below its own root
shift
apt="$folder.apt"
mkdir -p "$folder" "$apt/lists/partial" "$apt/archives/partial"
: >"$apt/status"
options=(
    -o "Dir::State=$apt" -o "Dir::State::status=$apt/status" -o "Dir::State::lists=$apt/lists"
    -o "Dir::Cache=$apt" -o "Dir::Cache::archives=$apt/archives" -o "APT::Sandbox::User="
    -o APT::Install-Recommends=false -o APT::Get::Assume-Yes=true -o Debug::NoLocking=true
    # Hooks of the system's own apt (clearing caches in container images) have nothing to do here, and no rights.
    -o "APT::Update::Post-Invoke=" -o "DPkg::Post-Invoke="
)
apt-get "${options[@]}" -qq update
apt-get "${options[@]}" -qq --download-only install "$@"
for package in "$apt"/archives/*.deb; do
    dpkg -x "$package" "$folder"
done
rm -rf "$apt"
