"""`_updates` of a live pipeline is what a second, independent assembly makes of the raw topics."""

from __future__ import annotations

from collections.abc import Callable

from conftest import Bank
from proofs import assert_proved, second_assembly_differs
from services import Pipeline, until


def test_updates_are_what_the_second_assembly_makes_of_the_topics(
    bank: Bank, make_pipeline: Callable[[str], Pipeline]
) -> None:
    pipeline = make_pipeline("assembled")
    with pipeline.running() as service:
        with bank.at_work(pipeline, seed=31) as workload:
            until(pipeline.newest, "the first epoch", alive=service)
            done = workload.counters.total()
            until(lambda: workload.counters.total() > done + 60, "work while it runs")
        bank.rests(pipeline, service)
        assert second_assembly_differs(pipeline, bank.bootstrap) == []
        assert service.stops() == 0
    assert_proved(pipeline, bank.dsns, bank.bootstrap)
