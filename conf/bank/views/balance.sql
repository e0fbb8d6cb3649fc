-- What every account of both banks holds: the sum of its entries and how many they are.
CREATE MATERIALIZED VIEW balance
WITH COMPLETE CONSISTENCY
USING replica
AS
SELECT 'north' AS database, a.id AS account, a.owner, a.branch,
       SUM(e.amount) AS balance, COUNT(*) AS entries
FROM north.account a
JOIN north.entry e ON e.account = a.id
GROUP BY a.id, a.owner, a.branch
UNION ALL
SELECT 'south', a.id, a.owner, a.branch, SUM(e.amount), COUNT(*)
FROM south.account a
JOIN south.entry e ON e.account = a.id
GROUP BY a.id, a.owner, a.branch
