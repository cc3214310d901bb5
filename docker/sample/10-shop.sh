#!/bin/sh
# The postgres image runs this once, as the superuser, when it creates the sample source: a schema with some rows, and the
# role and publication that lakeproof needs. On your own server a DBA does the same; `lakeproof plan` shows the SQL.
set -eu
psql --set=ON_ERROR_STOP=1 --username=postgres --dbname="$POSTGRES_DB" <<'SQL'
-- Read from the file here, since arguments of a command are visible in the list of processes.
\set password `cat /run/secrets/shop_password`
CREATE ROLE lakeproof LOGIN REPLICATION PASSWORD :'password';
CREATE SCHEMA shop;
CREATE TABLE shop.products (id int PRIMARY KEY, name text NOT NULL, price numeric(10, 2) NOT NULL);
CREATE TABLE shop.orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    product_id int NOT NULL REFERENCES shop.products,
    quantity int NOT NULL CHECK (quantity > 0),
    ordered_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO shop.products SELECT n, 'product ' || n, n * 1.25 FROM generate_series(1, 100) AS n;
INSERT INTO shop.orders (product_id, quantity) SELECT 1 + n % 100, 1 + n % 7 FROM generate_series(1, 10000) AS n;
GRANT USAGE ON SCHEMA shop TO lakeproof;
GRANT SELECT ON ALL TABLES IN SCHEMA shop TO lakeproof;
CREATE PUBLICATION lakeproof_shop FOR TABLE ONLY shop.products, ONLY shop.orders WITH (publish_via_partition_root = true);
SQL
