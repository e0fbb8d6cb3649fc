"""Multiple view consistency: action lists wait until whole rows can be committed (painting-mvc 4 to 6).

Pure machines. The *VUT* has a row for each transaction and a column for each view; a cell is *white*
while a list is needed, *red* when it has come, *grey* when applied, *black* where the view has no part
in the row.

In the order to read them: `vut_rows` and `vut` (the table), `algorithms` (which fits which managers),
`spa`, `pa`, `covered` and `blocks` with `by_blocks` (complete-N), `batching` and `disciplines` (what is
committed together, in which order), `changes` (views that join and leave), `routing` (REL that rides on
lists), `state` (what a restart needs), `machine` (messages in, batched transactions out: all that
changes its fields), `picture` (a VUT for people).

Example: REL says that number 7 concerns `total` and `balance`. The row is white, white; the list of
`total` comes: red, white; that of `balance`: red, red, and SPA hands the row to be committed.
"""
