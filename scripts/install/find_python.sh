#!/bin/sh
# Prints the first Python on PATH that lakeproof runs on (3.10 to 3.13, able to create a virtual environment), or one line
# about what is missing. PYTHON=/path/to/python selects one. Installs nothing.
set -u

supported='import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))'
complete='import ssl, venv, ensurepip'
incomplete=''

for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.10 python}; do
    # A version manager's shim may be on PATH without working: only a candidate that answers counts.
    "$candidate" -c "$supported" >/dev/null 2>&1 || continue
    if "$candidate" -c "$complete" >/dev/null 2>&1; then
        command -v "$candidate"
        exit 0
    fi
    incomplete=${incomplete:-$candidate}
done

if [ -n "$incomplete" ]; then
    echo "lakeproof: $incomplete has no venv or ensurepip module; install it (Debian, Ubuntu: apt install python3-venv)" >&2
elif [ -n "${PYTHON:-}" ]; then
    echo "lakeproof: PYTHON=$PYTHON is not a Python 3.10 to 3.13; set it to another, or leave it unset" >&2
else
    version=$(python3 --version 2>/dev/null || echo 'no python3')
    echo "lakeproof: needs Python 3.10 to 3.13, but $version is on PATH; install one (Debian, Ubuntu: apt install python3 python3-venv), or select one with PYTHON=/path/to/python3.12" >&2
fi
exit 2
