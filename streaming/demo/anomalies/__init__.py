"""The papers' anomalies, played on live databases: the naive state beside the right one.

In the order to read them: `shown` (a story's lines), `databases_played`, `player`, `played`; then the
stories `one_view`, `several_views`, `view_over_views`, `lock_order`; `all_anomalies` plays them all.
"""
