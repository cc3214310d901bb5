#!/bin/sh
# Makes the secrets that compose.yaml names, each with a random value, where they are not there yet; run it once.
set -eu
umask 077
cd "$(dirname "$0")"
mkdir -p secrets
random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
for name in shop_admin_password shop_password dagster_pg_password; do
    [ -s "secrets/$name" ] || random > "secrets/$name"
done
[ -s secrets/ui_login ] || { printf 'dagster:'; random; } > secrets/ui_login
# The containers' own users read them, under other ids than yours: the folder keeps everybody else out.
chmod 0444 secrets/*
echo "The UI asks for: $(cat secrets/ui_login)"
