"""Machines inside steps: a machine, its manifest, its messages and its metrics. One file a stage.

In the order to read them: `integrator_stage` with `incomplete_watch` and `span_watch`; `view_stage`
with `evaluators`, and its other forms: `asking_stage` with `dialogue` and `source_logs`,
`overview_stage`, `block_stage`, `joining_stage` with `first_rows` and `source_load`, `returning_stage`,
`broken_stage`; `merge_stage`; `rel_riding`; `stage_trouble`.
"""
