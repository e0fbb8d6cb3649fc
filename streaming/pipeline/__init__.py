"""From files to a checked plan: view files, catalog, modes, groups, costs, refusals. Nothing runs.

In the order to read them: `view_file` and `view_specs` (a view's file), `source_schemas` (what the
databases have), `catalog` (what is maintained), `choosing` (a manager for each view), `consistency`,
`refusals`, `merge_groups` with `pyco` and `costs`, `configured_groups`, `session_plan` (isolated
views), `broken_views` (views that no longer fit), `plan` (all of it), `costing` (what each choice
costs).

Example: `USING strobe` over two sources with global transactions is refused by `refusals`, with the
modes that can.
"""
