-- A small shop: the second schema of the demonstration, beside pgbench's own tables. The role that runs this owns it.

CREATE SCHEMA shop;

CREATE TABLE shop.customers (
    id bigint PRIMARY KEY,
    email text NOT NULL UNIQUE,
    name varchar(80) NOT NULL,
    country char(2) NOT NULL,
    joined_at timestamptz NOT NULL,
    -- Mostly 'infinity', which a timestamp in the lake can't represent; the lake keeps it as exact text.
    valid_until timestamptz NOT NULL DEFAULT 'infinity',
    balance numeric(12,2) NOT NULL DEFAULT 0,
    tags text[] NOT NULL DEFAULT '{}',
    profile jsonb NOT NULL DEFAULT '{}'
);

CREATE TABLE shop.products (
    -- Renamed now and then: a key change that cascades to the order lines.
    code text PRIMARY KEY,
    title text NOT NULL,
    price numeric(12,2) NOT NULL,
    stock integer NOT NULL,
    weight_kg double precision,
    discontinued boolean NOT NULL DEFAULT false,
    attributes jsonb,
    -- Longer than 8 KB and stored out of line: an update of another column sends "unchanged" for it.
    manual text
);
ALTER TABLE shop.products ALTER COLUMN manual SET STORAGE EXTERNAL;

CREATE TABLE shop.orders (
    id uuid PRIMARY KEY,
    customer_id bigint NOT NULL REFERENCES shop.customers,
    status text NOT NULL,
    placed_at timestamptz NOT NULL,
    delivery_day date,
    total numeric(12,2) NOT NULL,
    note text
);

CREATE TABLE shop.order_lines (
    order_id uuid NOT NULL REFERENCES shop.orders ON DELETE CASCADE,
    line_no integer NOT NULL,
    product_code text NOT NULL REFERENCES shop.products ON UPDATE CASCADE,
    quantity integer NOT NULL,
    unit_price numeric(12,2) NOT NULL,
    discount real,
    PRIMARY KEY (order_id, line_no)
);
CREATE INDEX ON shop.order_lines (product_code);
CREATE INDEX ON shop.orders (customer_id);
