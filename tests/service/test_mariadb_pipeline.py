"""One pipeline over a PostgreSQL and a MariaDB: global transactions, crossing, late, lost (DESIGN 6)."""

from __future__ import annotations

import random
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Bank
from kafka.admin import KafkaAdminClient
from proofs import assert_complete, assert_equal, assert_every_epoch_once, assert_no_change_twice
from services import Pipeline, Process, until
from twodatabases import Shop, open_shop, parts, shop_pipeline, start_capture

from streaming.ask.mariadb.mysql_state import LogPlace
from streaming.capture.kafka_writer import MAX_RECORD_BYTES, Writer
from streaming.capture.position import PublishedPosition
from streaming.configuration.pipeline_config import parse_config
from streaming.errors import FrescoError
from streaming.proof.databases import databases
from streaming.proof.verdicts import verify_pipeline, verify_sources
from streaming.readers import Warehouse

THREADS, EACH = 16, 6
LATE_MS = 300_000
"""How long a part may be late."""
WAITS_LITTLE = {"SHOP_TIMEOUT": "1500"}


@pytest.mark.timeout(900)
def test_sales_over_a_postgresql_and_a_mariadb_move_as_one_whatever_is_killed_or_late(
    bank: Bank, tmp_path: Path
) -> None:
    with ExitStack() as last:
        shop = last.enter_context(open_shop(bank, tmp_path / "mariadb"))
        pipeline = shop_pipeline(tmp_path / "shop", bank, shop, LATE_MS)
        captures = [start_capture(pipeline)]
        last.callback(lambda: captures[-1].kill())
        with pipeline.running() as service:
            until(pipeline.newest, "the first epoch", alive=service)
            sell_with_kills(shop, pipeline, captures)
            shop.rests(pipeline, service)
            ask_a_store_at_rest(shop, pipeline, service)
            assert service.stops() == 0
        proven(pipeline)

        impatient = replace(pipeline, environment={**pipeline.environment, **WAITS_LITTLE})
        with impatient.running() as service:
            lose_a_part(shop, impatient, service)
            shop.rests(impatient, service)
            assert service.stops() == 0
        assert captures[-1].stops() == 0
    assert "Traceback" not in service.says
    verdict = verify_pipeline(pipeline.warehouse, 50)
    assert verdict.problems == ()
    levels = {(line.kind, line.achieved) for line in verdict.lines}
    assert levels == {("view", "complete"), ("group", "weak")}, "a sale is seen half, and told"


def sell_with_kills(shop: Shop, pipeline: Pipeline, captures: list[Process]) -> None:
    """Crossing sales from 16 threads, one part long after the other, the capture killed twice, and
    then replaced by another that is started beside it."""
    early, late = parts(900, 1, 5.0, "sale-late")
    shop.at_till(*early)
    working = threading.Thread(target=shop.sell, args=(THREADS, EACH))
    working.start()
    for kill in ("first", "second"):
        captures[-1].kill()
        captures.append(start_capture(pipeline, kill))
    working.join()
    captures.append(start_capture(pipeline, "beside"))
    shop.at_store("TRUNCATE TABLE note")
    shop.at_store("INSERT INTO note VALUES (3, 'three')")
    shop.at_store("CREATE TABLE next_note LIKE note")
    shop.at_store("INSERT INTO next_note VALUES (4, 'four'), (4, 'four'), (5, 'five')")
    shop.at_store("RENAME TABLE note TO last_note, next_note TO note")  # its rows are in no log
    shop.at_store("DELETE FROM note WHERE id = 5")
    replaced = captures[-2]
    assert replaced.ends() != 0 and "CAPTURE_FENCED" in replaced.says, "one capture a source"
    shop.at_store(*late)


def ask_a_store_at_rest(shop: Shop, pipeline: Pipeline, service: Process) -> None:
    """An answer of a server whose log only went on to a new file needs no further transaction there."""
    shop.at_store("FLUSH BINARY LOGS")
    shop.at_till("UPDATE account SET owner = 'renamed' WHERE id = 1")

    def renamed(view: str) -> bool:
        return any(owner == "renamed" for _, _, owner, _ in pipeline.rows(view))

    until(lambda: renamed("joined") and renamed("asked"), "the new name", alive=service)


def lose_a_part(shop: Shop, pipeline: Pipeline, service: Process) -> None:
    """A part that never comes is released as local after the timeout, and the commit says so."""
    lost, _ = parts(901, 1, 7.0, "sale-lost")
    shop.at_till(*lost)
    until(
        lambda: any("sale-lost" in epoch.released for epoch in pipeline.epochs()),
        "the lost sale to be released",
        alive=service,
    )


def proven(pipeline: Pipeline) -> None:
    """Complete, equal to both databases, nothing twice, and both ways of maintaining agree."""
    assert_complete(verify_pipeline(pipeline.warehouse, 100))
    assert_equal(verify_sources(pipeline.warehouse, databases(pipeline.read_config())))
    assert_every_epoch_once(pipeline)
    assert_no_change_twice(pipeline)
    joined = pipeline.rows("joined")
    assert joined == pipeline.rows("asked")
    assert len(joined) == 20 + THREADS * EACH * 1 + THREADS * 2 + 1
    assert pipeline.rows("noted") == [(4, "four"), (4, "four")]
    assert not any(epoch.released for epoch in pipeline.epochs())
    assert set(totals(pipeline)) == {0}, "a sale was seen half"


def totals(pipeline: Pipeline) -> list[object]:
    """The sum of all entries at every epoch."""
    warehouse = Warehouse(pipeline.warehouse)
    found = []
    for epoch in pipeline.epochs():
        found += warehouse.read("total", epoch=epoch.epoch)["total"].to_pylist()
    return found


def test_an_event_that_no_topic_takes_ends_a_capture_and_shows_nothing_of_it(
    bank: Bank, tmp_path: Path
) -> None:
    """Refused by Kafka, or by the producer itself; neither is a broker that is away."""
    topic = {"num_partitions": 1, "replication_factor": 1, "configs": {"max.message.bytes": "2000"}}
    admin = KafkaAdminClient(bootstrap_servers=bank.bootstrap)
    admin.create_topics({"large.store.entry": topic})
    admin.close()
    raw = {"pipeline": "p", "warehouse": "w", "views": "v", "kafka": {"bootstrap": bank.bootstrap}}
    sources = {"large": {"tables": {"entry": "store.entry"}}}
    config = parse_config(raw | {"sources": sources}, folder=tmp_path)
    for size in (5000, MAX_RECORD_BYTES + 1):
        writer = Writer(config, "large", ["large.store.entry"])
        with pytest.raises(FrescoError) as refused:
            writer.send([("large.store.entry", b"key", random.Random(size).randbytes(size))])
            writer.commit(PublishedPosition(LogPlace("log.000001", 4), 1, "", 1))
        assert refused.value.code == "CAPTURE_RECORD_SIZE" and "large" in refused.value.where
        assert "max.message.bytes" in refused.value.todo
        assert writer.progress() is None
        writer.close()
