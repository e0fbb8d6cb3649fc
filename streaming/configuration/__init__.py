"""The configuration: one YAML file, checked whole by pydantic before anything starts (DESIGN 13).

In the order to read them: `yaml_file` (the file as plain values), `source_config` (one source),
`pipeline_config` (all of it).
"""
