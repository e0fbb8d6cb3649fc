"""The parts of `streaming.verify`: recomputation, comparison, levels, the databases' rows."""
