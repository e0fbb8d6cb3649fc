"""From a view's text to a tree: Spark SQL, read by sqlglot, checked word for word, refused by name.

Nothing of the text may be lost on the way: `accepted` knows every argument of every node that is
consumed, and `spelling` compares the tree with the words of the text.

In the order to read them: `lexer` (the words, each with its place), `syntax` (sqlglot's tree,
unchanged), `accepted`, `forbidden` and `spelling` (what is refused), `scope` (what names mean),
`clauses`, `from_clause`, `grouping`, `expressions` (to typed scalars), `parse` (all of it, to the
normal form).

Example: `SELECT owner FROM north.account WHERE balance > 0` becomes Project(Select(Scan
north.account)).
"""
