"""What is captured of the sources: relations, their columns over time, values, topics, servers.

A *layout* is all columns that a relation has ever had; a position means one column of one type, for
ever.

In the order to read them: `captured_schema` (sources and relations), `log_format` (where events say
they stand), `layout` (columns over time), `retyped` (what events say of types), `json_values` (one
column's JSON to typed values), `source_topics`, `source_origin` (is it still the same server),
`checked` (one finding, as `doctor` and a start show it).

Example: `ALTER TABLE entry ADD note text` puts position 5 at the end of the layout of `north.entry`;
views that were planned before go on without it.
"""
