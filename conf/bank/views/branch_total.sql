-- What the accounts of each branch hold together.
CREATE MATERIALIZED VIEW branch_total
WITH COMPLETE CONSISTENCY
USING replica
AS
SELECT 'north' AS database, a.branch, SUM(e.amount) AS total
FROM north.account a
JOIN north.entry e ON e.account = a.id
GROUP BY a.branch
UNION ALL
SELECT 'south', a.branch, SUM(e.amount)
FROM south.account a
JOIN south.entry e ON e.account = a.id
GROUP BY a.branch
