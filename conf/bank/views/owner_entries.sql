-- Who moved how much: no key, so equal rows stand as often as they happened.
CREATE MATERIALIZED VIEW owner_entries
WITH COMPLETE CONSISTENCY
USING replica
AS
SELECT a.owner, e.amount
FROM north.entry e
JOIN north.account a ON e.account = a.id
UNION ALL
SELECT a.owner, e.amount
FROM south.entry e
JOIN south.account a ON e.account = a.id
