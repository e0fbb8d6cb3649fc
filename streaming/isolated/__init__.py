"""Views maintained by sessions of their own, whole: Moro and Sartori's method (moro-sartori 5).

Triggers at the sources fill *delta tables*; a *session* reads them, computes ADD and DEL and installs
them.

In the order to read them: `add_del` (the rules), `session_messages`, `session_state`, `propagation`,
`isolated_manager` (the machine); at the sources `delta_tables`, `delta_install`, `delta_reader`,
`delta_query`, `delta_watch`; `session_group`, `session_start`, `session_loop`, `absent_views`,
`isolated_stage`.
"""
