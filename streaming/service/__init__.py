"""Starts the stages of a pipeline, watches them and stops them; says how they stand.

In the order to read them: `building` and `members` (which stages there are), `stage_set`, `service`,
`ending`, `terminal` and `screen` (what people see), `schema_watch`; before a start `surroundings`,
`old_date_search`, `origins`, `doctor`; for people `status`, `stalls`, `view_states`.
"""
