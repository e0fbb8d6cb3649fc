"""View managers: numbered updates in, action lists out (painting-mvc 3.3). Pure machines.

An *action list* is a view's change for one number or several. A *mode* is an algorithm with its level:
`modes` is the one table of facts, and the place to register another.

In the order to read them: `base` (the contract), `levels`, `modes`, `replica` (keeps what it needs and
asks nobody), `taint` (where a view must stop), `mirror` (the view as it was sent), `forwarding` (REL
that rides along); `asking/` has the papers' algorithms that ask the sources, `over_views/` views over
views.

Example: `replica` gets the updates 7 to 9, evaluates the view's delta once, and cuts it into a list
each.
"""
