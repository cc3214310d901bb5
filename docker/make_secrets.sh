#!/bin/sh
# Creates the secrets that compose.yaml names, with random values; existing secrets are kept. Run it once.
set -eu
umask 077
cd "$(dirname "$0")"
mkdir -p secrets
random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
for name in shop_admin_password shop_password dagster_pg_password grafana_password; do
    [ -s "secrets/$name" ] || random > "secrets/$name"
done
[ -s secrets/ui_login ] || { printf 'dagster:'; random; } > secrets/ui_login
# Of the profile `cluster`: the store's account as the AWS file has it, and what Spark's processes ask each other for.
[ -s secrets/aws_credentials ] || {
    printf '[default]\naws_access_key_id = lakeproof\naws_secret_access_key = '; random; echo
} > secrets/aws_credentials
[ -s secrets/spark_secret ] || random > secrets/spark_secret
[ -s secrets/spark_defaults ] ||
    printf 'spark.authenticate true\nspark.network.crypto.enabled true\nspark.authenticate.secret %s\n' \
        "$(cat secrets/spark_secret)" > secrets/spark_defaults
# The containers' users have other ids than yours and must read the files: the folder keeps everyone else out.
chmod 0444 secrets/*
echo "Login for the UI (user:password): $(cat secrets/ui_login)"
