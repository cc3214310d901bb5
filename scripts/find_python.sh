#!/bin/sh
# Prints the first Python on PATH that lakeproof runs on (3.10 to 3.13, able to make a virtual environment), or says in
# one line what is missing. PYTHON=/path/to/python chooses one. Nothing is installed here.
set -u

fits='import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))'
whole='import ssl, venv, ensurepip'
near=''

for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.10 python}; do
    # A version manager's shim may be on PATH and still not run: only what answers counts.
    "$candidate" -c "$fits" >/dev/null 2>&1 || continue
    if "$candidate" -c "$whole" >/dev/null 2>&1; then
        command -v "$candidate"
        exit 0
    fi
    near=${near:-$candidate}
done

if [ -n "$near" ]; then
    echo "lakeproof: $near has no venv or ensurepip module; install it (Debian, Ubuntu: apt install python3-venv)" >&2
elif [ -n "${PYTHON:-}" ]; then
    echo "lakeproof: PYTHON=$PYTHON is not a Python 3.10 to 3.13; name another, or leave PYTHON out" >&2
else
    found=$(python3 --version 2>/dev/null || echo 'no python3')
    echo "lakeproof: needs Python 3.10 to 3.13 and found $found on PATH; install one (Debian, Ubuntu: apt install python3 python3-venv), or name one with PYTHON=/path/to/python3.12" >&2
fi
exit 2
