-- Entries that someone should look at, with whose account they are on.
CREATE MATERIALIZED VIEW large_entry
WITH COMPLETE CONSISTENCY
USING replica
AS
SELECT 'north' AS database, e.id AS entry, a.id AS account, a.owner, e.amount
FROM north.entry e
JOIN north.account a ON e.account = a.id
WHERE e.amount > 500 OR e.amount < -500
UNION ALL
SELECT 'south', e.id, a.id, a.owner, e.amount
FROM south.entry e
JOIN south.account a ON e.account = a.id
WHERE e.amount > 500 OR e.amount < -500
