"""The core: trees over signed bags, what they mean, and how a view changes when its relations do.

Pure, and without an engine. A *bag* has rows with multiplicities, which may be negative in a *delta*; a
delta's rows also carry the *number* of their transaction. A *place* is one occurrence of a relation in
a view.

In the order to read them: `tree` (the nodes), `bag` (what they mean, row by row), `numbered` (the same
with numbers), `delta` (the delta rules), `normal_form` (how a view's tree is put), `tree_json`; `keys`
and `view_keys` (which columns tell rows apart); `scans` (what a view reads), `psj`, `join_graph` and
`source_queries` (views and questions as the papers write them), `compensate` (the answer at another
state), `expanded` (a view over views written over base relations), `operators` (all of this without
looking into rows).

Example: `total = SELECT SUM(amount) FROM north.entry`. `sql` makes Aggregate(Project(Scan)) of it;
`delta` says that its change at number 7 is the sum over the rows of number 7, which replaces the row
before.
"""
