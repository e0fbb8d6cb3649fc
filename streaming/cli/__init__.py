"""The `fresco` command: what a person runs. Output for people, `--json` for programs. Nothing imports
it.

In the order to read them: `commands` (the first level), `view_commands`, `source_commands`,
`topic_commands`, `isolated_commands`, `ddl`; `reporting` (errors, where output goes), `tables`,
`capture_lines`, `snapshot_lines`, `topic_lines` (what is printed).
"""
