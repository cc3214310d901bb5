SELECT p.id, p.name, sum(o.quantity * p.price) AS revenue
FROM orders o JOIN products p ON p.id = o.product_id
GROUP BY p.id, p.name
