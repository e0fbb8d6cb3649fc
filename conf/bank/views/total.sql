-- All the money there is, over both banks: transfers never move it.
CREATE MATERIALIZED VIEW total
WITH COMPLETE CONSISTENCY
USING replica
AS
SELECT SUM(amount) AS total, COUNT(*) AS entries
FROM (
    SELECT amount FROM north.entry
    UNION ALL
    SELECT amount FROM south.entry
) both_banks
