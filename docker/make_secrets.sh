#!/bin/sh
# Creates the secrets that compose.yaml names, with random values; existing secrets are kept. Run it once.
set -eu
umask 077
cd "$(dirname "$0")"
mkdir -p secrets
random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
for name in shop_admin_password shop_password dagster_pg_password; do
    [ -s "secrets/$name" ] || random > "secrets/$name"
done
[ -s secrets/ui_login ] || { printf 'dagster:'; random; } > secrets/ui_login
# The containers' users have other ids than yours and must read the files: the folder keeps everyone else out.
chmod 0444 secrets/*
echo "Login for the UI (user:password): $(cat secrets/ui_login)"
