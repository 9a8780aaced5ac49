#!/bin/bash
# Makes sure that vLLM's CPU kernels find libnuma.so.1, which minimal systems lack: numa.sh VENV
# Without it vLLM only warns, and fails much later. As root the package is installed; otherwise the library is put into the
# environment, and a .pth file loads it when Python starts: the kernels carry no search path that could point there.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
venv=$(cd "$1" && pwd)
python="$venv/bin/python"

found() { "$python" -c 'import ctypes; ctypes.CDLL("libnuma.so.1")' 2>/dev/null; }

found && exit 0
"$here/apt_install.sh" libnuma1 && found && exit 0
if command -v apt-get >/dev/null && "$here/apt_fetch.sh" "$venv/numa" libnuma1 >&2; then
    site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
    find "$venv/numa" -name 'libnuma.so.1.*' -exec cp {} "$venv/lib/libnuma.so.1" \;
    printf 'import ctypes; ctypes.CDLL("%s", ctypes.RTLD_GLOBAL)\n' "$venv/lib/libnuma.so.1" >"$site/libnuma.pth"
    rm -rf "$venv/numa"
    found && exit 0
fi
echo "vLLM on a processor needs libnuma.so.1: install it (apt-get install libnuma1)" >&2
exit 1
