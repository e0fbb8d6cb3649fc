"""A driver that slept while another took over wakes up, does no harm and ends by itself (DESIGN 9)."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from conftest import Bank
from proofs import assert_proved
from services import Pipeline, until


@pytest.mark.timeout(1200)
def test_a_paused_driver_that_wakes_up_is_fenced_and_says_who_holds_the_pipeline(
    bank: Bank, make_pipeline: Callable[[str], Pipeline]
) -> None:
    pipeline = make_pipeline("paused")
    steps = pipeline.warehouse / "_state" / f"merge-{pipeline.group}" / "manifests"
    with ExitStack() as starts:
        first = starts.enter_context(pipeline.running("first"))
        with bank.at_work(pipeline, rate=8, seed=99):
            until(pipeline.newest, "the first epoch", alive=first)
            before = max(os.listdir(steps))
            until(lambda: max(os.listdir(steps)) > before, "a step, hardly applied", alive=first)
            first.signal(signal.SIGSTOP)
            second = starts.enter_context(pipeline.running("second"))
            until(lambda: generation(pipeline) == 2, "epochs of the second", alive=second)
            first.signal(signal.SIGCONT)
            assert first.ends() == 1
            published = pipeline.epochs()[-1].epoch
            until(lambda: pipeline.epochs()[-1].epoch > published, "more of them", alive=second)
        bank.rests(pipeline, second)
        assert second.stops() == 0
        assert "SERVICE_FENCED generation 1 was replaced by generation 2" in first.says
        holder = re.search(r"'process': (\d+)", first.says)
        assert holder is not None and int(holder[1]) == second.pid
        assert "Traceback" not in first.says
    assert_proved(pipeline, bank.dsns, bank.bootstrap)


def generation(pipeline: Pipeline) -> int:
    """The start that wrote the newest epoch."""
    newest = pipeline.newest()
    return newest.generation if newest else 0
