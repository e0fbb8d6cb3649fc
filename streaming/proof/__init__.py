"""The parts of `streaming.proof.verdicts`: recomputation, comparison, levels, the databases' rows."""
