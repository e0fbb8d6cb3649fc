"""The production machines over a simulated network, from a seed: random histories and an auditor.

A *case* says what is simulated; a *history* is one run of it; the auditor finds the strongest level it
has.

In the order to read them: `case`, `small_views`, `workload`, `network`, `simulated_source` and
`delta_source`, `integrator_node` with `items` and `rel`, `view_node`, `nodes`, `roster`, `world` (all
of them together), `bag_evaluator`, `definition`, `lattice`, `auditor`, `judging`, `notation`,
`isolated_histories`.

Example: `python -m streaming.simulator --mode naive --search complete` finds the shortest history that
is wrong.
"""
