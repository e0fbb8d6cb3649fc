"""The integrator's machine: complete transactions in, numbers and REL out (painting-mvc 3.2). Pure.

A *cut* is the end of a step: all of it is numbered, nothing after it. A *knot* is a set of global
transactions that can only have one number, because the sources logged their parts in different orders.

In the order to read them: `window` (what is known and not numbered), `knots`, `numbering`, `straddling`
(global transactions over a cut), `integrator_machine`, `relevance` (REL: which views a number
concerns).
"""
