-- The orders of a wholesaler with warehouses: nine tables and five transactions after the model of TPC-C, written here.
-- Different from TPC-C: nobody waits between transactions, and a client is not bound to a warehouse.

CREATE TABLE warehouse (
    w_id int PRIMARY KEY, w_name varchar(10), w_street varchar(20), w_city varchar(20), w_state char(2), w_zip char(9),
    w_tax numeric(4, 4), w_ytd numeric(12, 2)
);
CREATE TABLE district (
    d_w_id int, d_id int, d_name varchar(10), d_street varchar(20), d_city varchar(20), d_state char(2), d_zip char(9),
    d_tax numeric(4, 4), d_ytd numeric(12, 2), d_next_o_id int,
    PRIMARY KEY (d_w_id, d_id)
);
CREATE TABLE customer (
    c_w_id int, c_d_id int, c_id int, c_first varchar(16), c_middle char(2), c_last varchar(16), c_street varchar(20),
    c_city varchar(20), c_state char(2), c_zip char(9), c_phone char(16), c_since timestamptz, c_credit char(2),
    c_credit_lim numeric(12, 2), c_discount numeric(4, 4), c_balance numeric(12, 2), c_ytd_payment numeric(12, 2),
    c_payment_cnt int, c_delivery_cnt int, c_data varchar(500),
    PRIMARY KEY (c_w_id, c_d_id, c_id)
);
CREATE INDEX customer_name ON customer (c_w_id, c_d_id, c_last, c_first);
-- Without a key, as in TPC-C. It is only inserted into, but beside the others it is published with updates and deletes.
CREATE TABLE history (
    h_c_id int, h_c_d_id int, h_c_w_id int, h_d_id int, h_w_id int, h_date timestamptz, h_amount numeric(6, 2),
    h_data varchar(24)
);
ALTER TABLE history REPLICA IDENTITY FULL;
CREATE TABLE orders (
    o_w_id int, o_d_id int, o_id int, o_c_id int, o_entry_d timestamptz, o_carrier_id int, o_ol_cnt int, o_all_local bool,
    PRIMARY KEY (o_w_id, o_d_id, o_id)
);
CREATE INDEX orders_customer ON orders (o_w_id, o_d_id, o_c_id, o_id);
CREATE TABLE new_order (no_w_id int, no_d_id int, no_o_id int, PRIMARY KEY (no_w_id, no_d_id, no_o_id));
CREATE TABLE order_line (
    ol_w_id int, ol_d_id int, ol_o_id int, ol_number int, ol_i_id int, ol_supply_w_id int, ol_delivery_d timestamptz,
    ol_quantity int, ol_amount numeric(8, 2), ol_dist_info char(24),
    PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)
);
CREATE TABLE item (i_id int PRIMARY KEY, i_im_id int, i_name varchar(24), i_price numeric(5, 2), i_data varchar(50));
CREATE TABLE stock (
    s_w_id int, s_i_id int, s_quantity int,
    s_dist_01 char(24), s_dist_02 char(24), s_dist_03 char(24), s_dist_04 char(24), s_dist_05 char(24),
    s_dist_06 char(24), s_dist_07 char(24), s_dist_08 char(24), s_dist_09 char(24), s_dist_10 char(24),
    s_ytd int, s_order_cnt int, s_remote_cnt int, s_data varchar(50),
    PRIMARY KEY (s_w_id, s_i_id)
);

CREATE FUNCTION pick(low int, high int) RETURNS int LANGUAGE sql VOLATILE
    AS $$ SELECT floor(random() * (high - low + 1))::int + low $$;

-- Some numbers come much more often than others: TPC-C's NURand.
CREATE FUNCTION pick_often(spread int, low int, high int) RETURNS int LANGUAGE sql VOLATILE
    AS $$ SELECT ((pick(0, spread) | pick(low, high)) + 42) % (high - low + 1) + low $$;

CREATE FUNCTION last_name(number int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT syllables[number / 100 + 1] || syllables[number / 10 % 10 + 1] || syllables[number % 10 + 1]
    FROM (SELECT ARRAY['BAR', 'OUGHT', 'ABLE', 'PRI', 'PRES', 'ESE', 'ANTI', 'CALLY', 'ATION', 'EING']) AS s (syllables)
$$;

CREATE FUNCTION text_24() RETURNS text LANGUAGE sql VOLATILE AS $$ SELECT substr(md5(random()::text), 1, 24) $$;

CREATE PROCEDURE fill_items() LANGUAGE sql AS $$
    INSERT INTO item
    SELECT i, pick(1, 10000), substr(md5(random()::text), 1, 20), pick(100, 10000) / 100.0,
           md5(random()::text) || CASE WHEN random() < 0.1 THEN 'ORIGINAL' ELSE '' END
    FROM generate_series(1, 100000) i
$$;

CREATE PROCEDURE fill_warehouse(w int) LANGUAGE sql AS $$
    INSERT INTO warehouse VALUES (w, 'W' || w, 'Street ' || w, 'City', 'CA', '123411111', pick(0, 2000) / 10000.0, 300000);
    INSERT INTO district
    SELECT w, d, 'D' || d, 'Street ' || d, 'City', 'CA', '123411111', pick(0, 2000) / 10000.0, 30000, 3001
    FROM generate_series(1, 10) d;
    INSERT INTO stock
    SELECT w, i, pick(10, 100), text_24(), text_24(), text_24(), text_24(), text_24(), text_24(), text_24(), text_24(),
           text_24(), text_24(), 0, 0, 0, md5(random()::text)
    FROM generate_series(1, 100000) i;
    INSERT INTO customer
    SELECT w, d, c, substr(md5(random()::text), 1, 12), 'OE',
           last_name(CASE WHEN c <= 1000 THEN c - 1 ELSE pick_often(255, 0, 999) END), 'Street ' || c, 'City', 'CA',
           '123411111', lpad(c::text, 16, '0'), now(), CASE WHEN random() < 0.1 THEN 'BC' ELSE 'GC' END, 50000,
           pick(0, 5000) / 10000.0, -10, 10, 1, 0,
           (SELECT string_agg(md5(c::text || n || random()), '') FROM generate_series(1, 12) n)
    FROM generate_series(1, 10) d, generate_series(1, 3000) c;
    INSERT INTO history
    SELECT c_id, c_d_id, c_w_id, c_d_id, c_w_id, now(), 10, substr(md5(random()::text), 1, 20)
    FROM customer WHERE c_w_id = w;
    -- Every customer has one order; the last 900 of a district are not delivered.
    INSERT INTO orders
    SELECT w, d, o, (o * 1237) % 3000 + 1, now(), CASE WHEN o <= 2100 THEN pick(1, 10) END, pick(5, 15), true
    FROM generate_series(1, 10) d, generate_series(1, 3000) o;
    INSERT INTO new_order SELECT w, o_d_id, o_id FROM orders WHERE o_w_id = w AND o_id > 2100;
    INSERT INTO order_line
    SELECT w, o_d_id, o_id, n, pick(1, 100000), w, CASE WHEN o_id <= 2100 THEN o_entry_d END, 5,
           CASE WHEN o_id <= 2100 THEN 0 ELSE pick(1, 999999) / 100.0 END, text_24()
    FROM orders, generate_series(1, o_ol_cnt) n WHERE o_w_id = w;
$$;

-- 45 of 100 transactions. One of a hundred ends with an item that does not exist, and is rolled back.
CREATE PROCEDURE new_order_transaction(w int, warehouses int) LANGUAGE plpgsql AS $$
DECLARE
    d int := pick(1, 10);
    c int := pick_often(1023, 1, 3000);
    lines int := pick(5, 15);
    items int[];
    suppliers int[];
    o int;
    quantity int;
    price numeric;
    dist char(24);
    factor numeric;
BEGIN
    -- In one order for all, so that two transactions don't wait for each other's stock.
    SELECT array_agg(i ORDER BY s, i), array_agg(s ORDER BY s, i) INTO items, suppliers
    FROM (SELECT pick_often(8191, 1, 100000) AS i,
                 CASE WHEN random() < 0.01 THEN pick(1, warehouses) ELSE w END AS s
          FROM generate_series(1, lines)) AS line;
    SELECT (1 - c_discount) * (1 + w_tax) INTO factor
    FROM customer, warehouse WHERE c_w_id = w AND c_d_id = d AND c_id = c AND w_id = w;
    UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = w AND d_id = d RETURNING d_next_o_id - 1 INTO o;
    INSERT INTO orders VALUES (w, d, o, c, now(), NULL, lines, suppliers = array_fill(w, ARRAY[lines]));
    INSERT INTO new_order VALUES (w, d, o);
    FOR n IN 1..lines LOOP
        quantity := pick(1, 10);
        SELECT i_price INTO price FROM item WHERE i_id = items[n];
        UPDATE stock
        SET s_quantity = CASE WHEN s_quantity >= quantity + 10 THEN s_quantity - quantity ELSE s_quantity - quantity + 91 END,
            s_ytd = s_ytd + quantity, s_order_cnt = s_order_cnt + 1,
            s_remote_cnt = s_remote_cnt + (suppliers[n] <> w)::int
        WHERE s_w_id = suppliers[n] AND s_i_id = items[n]
        RETURNING CASE d WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04
            WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08
            WHEN 9 THEN s_dist_09 ELSE s_dist_10 END INTO dist;
        INSERT INTO order_line
        VALUES (w, d, o, n, items[n], suppliers[n], NULL, quantity, quantity * price * factor, dist);
    END LOOP;
    IF random() < 0.01 THEN
        ROLLBACK;
    END IF;
END $$;

-- A customer by number, or, more often, the middle one of those with a name.
CREATE FUNCTION pick_customer(w int, d int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    name text := last_name(pick_often(255, 0, 999));
    numbers int[];
BEGIN
    IF random() < 0.4 THEN
        RETURN pick_often(1023, 1, 3000);
    END IF;
    SELECT array_agg(c_id ORDER BY c_first) INTO numbers
    FROM customer WHERE c_w_id = w AND c_d_id = d AND c_last = name;
    RETURN coalesce(numbers[(cardinality(numbers) + 1) / 2], pick(1, 3000));
END $$;

-- 43 of 100 transactions.
CREATE PROCEDURE payment_transaction(w int, warehouses int) LANGUAGE plpgsql AS $$
DECLARE
    d int := pick(1, 10);
    customer_w int := CASE WHEN random() < 0.15 THEN pick(1, warehouses) ELSE w END;
    customer_d int := CASE WHEN customer_w = w THEN d ELSE pick(1, 10) END;
    c int := pick_customer(customer_w, customer_d);
    amount numeric := pick(100, 500000) / 100.0;
BEGIN
    UPDATE warehouse SET w_ytd = w_ytd + amount WHERE w_id = w;
    UPDATE district SET d_ytd = d_ytd + amount WHERE d_w_id = w AND d_id = d;
    UPDATE customer
    SET c_balance = c_balance - amount, c_ytd_payment = c_ytd_payment + amount, c_payment_cnt = c_payment_cnt + 1,
        c_data = CASE c_credit
            WHEN 'BC' THEN left(concat_ws(' ', c, customer_d, customer_w, d, w, amount) || c_data, 500) ELSE c_data END
    WHERE c_w_id = customer_w AND c_d_id = customer_d AND c_id = c;
    INSERT INTO history VALUES (c, customer_d, customer_w, d, w, now(), amount, 'W' || w || '    D' || d);
END $$;

-- 4 of 100 transactions.
CREATE PROCEDURE order_status_transaction(w int) LANGUAGE plpgsql AS $$
DECLARE
    d int := pick(1, 10);
    c int := pick_customer(w, d);
    o int;
BEGIN
    SELECT max(o_id) INTO o FROM orders WHERE o_w_id = w AND o_d_id = d AND o_c_id = c;
    PERFORM ol_i_id, ol_quantity, ol_amount FROM order_line WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o;
END $$;

-- 4 of 100 transactions: the oldest order of each district. One that another transaction delivers is left to it.
CREATE PROCEDURE delivery_transaction(w int) LANGUAGE plpgsql AS $$
DECLARE
    o int;
    c int;
    total numeric;
    carrier int := pick(1, 10);
BEGIN
    FOR d IN 1..10 LOOP
        SELECT no_o_id INTO o FROM new_order WHERE no_w_id = w AND no_d_id = d ORDER BY no_o_id
        LIMIT 1 FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN o IS NULL;
        DELETE FROM new_order WHERE no_w_id = w AND no_d_id = d AND no_o_id = o;
        UPDATE orders SET o_carrier_id = carrier WHERE o_w_id = w AND o_d_id = d AND o_id = o RETURNING o_c_id INTO c;
        UPDATE order_line SET ol_delivery_d = now() WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o;
        SELECT sum(ol_amount) INTO total FROM order_line WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o;
        UPDATE customer SET c_balance = c_balance + total, c_delivery_cnt = c_delivery_cnt + 1
        WHERE c_w_id = w AND c_d_id = d AND c_id = c;
    END LOOP;
END $$;

-- 4 of 100 transactions.
CREATE PROCEDURE stock_level_transaction(w int) LANGUAGE plpgsql AS $$
DECLARE
    d int := pick(1, 10);
    low int := pick(10, 20);
    next int;
BEGIN
    SELECT d_next_o_id INTO next FROM district WHERE d_w_id = w AND d_id = d;
    PERFORM count(DISTINCT s_i_id) FROM order_line, stock
    WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id >= next - 20 AND ol_o_id < next
      AND s_w_id = w AND s_i_id = ol_i_id AND s_quantity < low;
END $$;
