#!/bin/bash
# Makes a virtual environment with pip, also where ensurepip and pip are missing: make_venv.sh FOLDER [PYTHON]
# A working one is kept as it is.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
venv=$1
python=${2:-}

works() { "$venv/bin/python" -m pip --version >/dev/null 2>&1; }
new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }

works && exit 0

for candidate in ${python:-python3 python3.13 python3.12 python3.11 python3.10 python3.14}; do
    new_enough "$candidate" && break
    candidate=
done
if [ -z "$candidate" ]; then
    echo "${python:-python3} is not Python 3.10 or newer: install one, or name it: make PYTHON=python3.12" >&2
    exit 1
fi

# Debian and Ubuntu keep ensurepip, and with it pip, in a package of its own.
version=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
"$candidate" -m venv "$venv" >/dev/null 2>&1 && works && exit 0
if "$here/apt_install.sh" "python$version-venv"; then
    "$candidate" -m venv --clear "$venv" && works && exit 0
fi

# Not root: pip's own wheel runs without being installed, and installs itself.
"$candidate" -m venv --clear --without-pip "$venv"
"$here/apt_fetch.sh" "$venv/pip-wheel" python3-pip-whl >&2 || true
wheel=$(find "$venv/pip-wheel" /usr/share/python-wheels -name 'pip-*.whl' 2>/dev/null | head -n 1 || true)
if [ -n "$wheel" ]; then
    PYTHONPATH="$wheel" "$venv/bin/python" -m pip install --quiet --no-index "$wheel"
fi
rm -rf "$venv/pip-wheel"
works && exit 0
echo "cannot make a virtual environment with pip: install python$version-venv (apt-get install python$version-venv)" >&2
exit 1
