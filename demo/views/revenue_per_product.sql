-- What each product has brought in, over all orders that were not cancelled.
SELECT
    p.code,
    p.title,
    count(DISTINCT o.id) AS orders,
    sum(l.quantity) AS pieces,
    sum(cast(l.quantity * l.unit_price AS decimal(18, 2))) AS revenue
FROM products AS p
JOIN order_lines AS l ON l.product_code = p.code
JOIN orders AS o ON o.id = l.order_id
WHERE o.status <> 'cancelled'
GROUP BY p.code, p.title
