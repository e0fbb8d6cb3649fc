"""MariaDB's types: what each is called, how its values are written, and how conditions are sent."""

from __future__ import annotations

import base64
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pymysqlreplication.constants import FIELD_TYPE as T

from streaming.algebra.tree import Relation
from streaming.ask.mariadb.mariadb_kind import MARIADB, MYSQL_LOG
from streaming.ask.mariadb.mysql_filter import weaker
from streaming.ask.mariadb.mysql_types import kind_of
from streaming.ask.mariadb.mysql_url import parse_url
from streaming.ask.mariadb.mysql_values import MysqlColumn
from streaming.ask.postgres.postgres_kind import POSTGRES
from streaming.ask.reduction import reduction
from streaming.ask.source_kinds import kind_of_connection
from streaming.capture.cells import cell, log_encoders, schema_text
from streaming.capture.charsets import Charsets
from streaming.capture.table_map import LoggedColumn
from streaming.captured.captured_schema import CapturedSource, captured, spark_type
from streaming.captured.retyped import by_schema
from streaming.cdc.debezium import Decoder
from streaming.errors import FrescoError
from streaming.scalars.expression import Column
from streaming.sql.parse import parse
from tests.sourcelog import Topics


@pytest.mark.parametrize(
    ("column_type", "spark"),
    [
        ("tinyint(1)", "smallint"),
        ("tinyint(3) unsigned", "smallint"),
        ("smallint(5) unsigned zerofill", "int"),
        ("mediumint(9)", "int"),
        ("int(10) unsigned", "bigint"),
        ("bigint(20)", "bigint"),
        ("bigint(20) unsigned", "decimal(20,0)"),
        ("decimal(18,2)", "decimal(18,2)"),
        ("decimal(65,30)", None),
        ("float", "float"),
        ("double(8,2) unsigned", "double"),
        ("date", "date"),
        ("datetime(6)", "timestamp_ntz"),
        ("datetime", "timestamp_ntz"),
        ("timestamp(3)", "timestamp"),
        ("time(6)", None),
        ("year(4)", "int"),
        ("year(2)", None),
        ("datetime(6) /* mariadb-5.3 */", "timestamp_ntz"),
        ("char(4)", "string"),
        ("longtext", "string"),
        ("enum('a','(b')", "string"),
        ("set('x','bigint unsigned')", "string"),
        ("binary(4)", "binary"),
        ("mediumblob", "binary"),
        ("bit(1)", "boolean"),
        ("bit(10)", "binary"),
        ("geometry", None),
        ("uuid", None),
    ],
)
def test_a_column_type_has_its_spark_type(column_type: str, spark: str | None) -> None:
    assert spark_type(kind_of(column_type).captured) == spark


CASES: list[tuple[str, Any, Any, Any]] = [
    ("tinyint(4)", "-128", -128, -128),
    ("int(10) unsigned zerofill", "0000000042", 42, 42),
    ("bigint(20) unsigned", "18446744073709551615", 18446744073709551615, -1),
    ("bigint(20) unsigned", "5", 5, 5),
    ("decimal(18,2)", "-12.30", Decimal("-12.30"), "+zI="),
    ("decimal(20,0)", "0", Decimal(0), "AA=="),
    ("decimal(38,10)", "1234567890123456789012345678.0123456789",
     Decimal("1234567890123456789012345678.0123456789"), "CUmw9vACMxPESZBOzGdFFQ=="),
    ("float", "0.10000000149011612", 0.10000000149011612, 0.1),
    ("double", "1e308", 1e308, 1e308),
    ("date", "1969-12-31", -1, -1),
    ("datetime(6)", "0001-01-01 00:00:00.000000", -62135596800000000, -62135596800000000),
    ("datetime(3)", "1970-01-01 00:00:00.001", 1000, 1),
    ("datetime", "0000-00-00 00:00:00", None, None),
    ("timestamp(6)", "2024-02-29 12:00:00.123456", 1709208000123456, "2024-02-29T12:00:00.123456Z"),
    ("timestamp", "0000-00-00 00:00:00", None, None),
    ("time(6)", "-838:59:59.500000", -3020399500000, -3020399500000),
    ("year(4)", "2024", 2024, 2024),
    ("varchar(20)", "é🙂", "é🙂", "é🙂"),
    ("json", '{"a": 1}', '{"a": 1}', '{"a": 1}'),
    ("varbinary(9)", b"\x00\xff", b"\x00\xff", "AP8="),
    ("binary(4)", b"ab\x00\x00", b"ab", "YWIAAA=="),
    ("binary(2)", b"\x00\x00", b"", "AAA="),
    ("bit(1)", "1", 1, True),
    ("bit(10)", "513", 513, "AQI="),
]  # fmt: skip


@pytest.mark.parametrize(("column_type", "text", "logged", "json"), CASES)
def test_a_value_is_written_alike_from_a_snapshot_and_from_the_log(
    column_type: str, text: Any, logged: Any, json: Any
) -> None:
    made = cell(kind_of(column_type), "precise")
    assert made.from_text(text) == json
    assert (None if logged is None else made.from_log(logged)) == json


def told_retyped(logged: str, known: str, decimals: Any = "precise") -> bool:
    """Whether events of one column type say to a reader of another that they are not its own."""
    columns = [("id", "int"), ("v", kind_of(known).captured)]
    relation = captured("s.t", "s.b.t", columns, decimals=decimals)
    event = f'{{"schema":{schema_text([("v", kind_of(logged))], decimals)},"payload":{{}}}}'
    ((_, positions),) = by_schema(relation, pa.table({"p": [0], "o": [0], "v": [event]}))
    return bool(positions)


@pytest.mark.parametrize("decimals", ["precise", "string"])
def test_events_say_their_types_and_a_reader_of_the_same_type_reads_them(decimals: str) -> None:
    types = {column_type for column_type, *_ in CASES} | {"enum('a')", "set('a')", "decimal(20,0)"}
    assert not [one for one in types if told_retyped(one, one, decimals)]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("decimal(10,2)", "decimal(12,4)", True),
        ("decimal(10,2)", "decimal(12,2)", False),
        ("datetime", "datetime(6)", True),
        ("datetime", "datetime(3)", False),
        ("date", "datetime", True),
        ("date", "int(11)", True),
        ("datetime(6)", "timestamp(6)", True),
        ("bigint(20)", "bigint(20) unsigned", True),
        ("bigint(20) unsigned", "bigint(20)", True),
        ("int(11)", "bigint(20)", False),
        ("int(10) unsigned", "int(11)", False),
        ("varchar(9)", "varbinary(9)", True),
        ("varbinary(9)", "varchar(9)", True),
        ("varchar(9)", "longtext", False),
        ("bit(10)", "bit(20)", True),
        ("bit(1)", "bit(2)", True),
        ("bigint(20)", "bit(20)", True),
    ],
)
def test_a_reader_is_told_of_a_type_under_which_it_would_read_another_value(
    before: str, after: str, told: bool
) -> None:
    assert told_retyped(after, before) is told


def test_decimals_may_be_written_as_digits() -> None:
    made = cell(kind_of("decimal(18,2)"), "string")
    assert made.from_text("-12.30") == made.from_log(Decimal("-12.3")) == "-12.30"


SINGLE = {bytes([n]).hex(): chr(n) for n in range(128)} | {"e9": "é", "80": "€"}


def answers(query: str) -> list[tuple[Any, ...]]:
    """A server with a few collations, whose latin1 is its own; no octet 81 is in it."""
    if "information_schema.columns" in query:
        return []
    if "information_schema" in query:
        return [(45, "utf8mb4"), (35, "ucs2"), (8, "latin1"), (None, "utf8mb4")]
    assert "USING latin1" in query
    return list(SINGLE.items())


def test_members_keep_the_order_of_their_type_and_text_its_server_s_characters() -> None:
    columns = [
        LoggedColumn("e", T.ENUM, 1, collation=8, labels=(b"a", b"\xe9")),
        LoggedColumn("s", T.SET, 1, collation=8, labels=(b"a", b"b", b"\x80")),
        LoggedColumn("t", T.VARCHAR, 9, collation=35),
        LoggedColumn("l", T.BLOB, 1, collation=8),
    ]
    encoders = dict(log_encoders(columns, "precise", Charsets(answers)))
    assert [encoders["e"](number) for number in (0, 1, 2)] == ["", "a", "é"]
    assert [encoders["s"](bits) for bits in (0, 5, 7)] == ["", "a,€", "a,b,€"]
    assert encoders["t"]("é".encode("utf-16-be")) == "é"
    assert encoders["l"](b"\xe9\x80") == "é€"
    for name, octets in (("t", b"\xd8"), ("l", b"\x81")):
        with pytest.raises(FrescoError, match="CAPTURE_TEXT"):
            encoders[name](octets)
    with pytest.raises(FrescoError, match=r"CAPTURE_TEXT.*collation.*\(9\)"):
        log_encoders([LoggedColumn("u", T.VARCHAR, 9, collation=9)], "precise", Charsets(answers))


def decoded(column_type: str, value: Any, unfit: list[int] | None = None) -> Any:
    """A value's JSON through the decoder."""
    kind = kind_of(column_type)
    relation = captured("s.t", "s.b.t", [("id", "int"), ("v", kind.captured)], key=["id"])
    import json

    event = {
        "op": "c",
        "before": None,
        "after": {"id": 1, "v": value},
        "source": {"file": "binlog.000002", "pos": 5},
        "transaction": {"id": "file=binlog.000002,pos=4", "total_order": 1},
    }
    source = CapturedSource("s", "s", log=MYSQL_LOG)
    found = Decoder([relation], [source]).decode(Topics().batch([("s.b.t", json.dumps(event))]))
    assert found.bad == ()
    rows = found.rows["s.t"]
    assert rows["position"].to_pylist() == [(2 << 32) + 5]
    assert rows["unfit"].to_pylist() == [unfit]
    return rows["a1"][0].as_py()


@pytest.mark.parametrize(
    ("column_type", "value", "expected"),
    [
        ("bigint(20) unsigned", -1, Decimal(18446744073709551615)),
        ("bigint(20) unsigned", 9223372036854775807, Decimal(9223372036854775807)),
        ("bit(10)", base64.b64encode(b"\x01\x02").decode(), b"\x02\x01"),
        ("bit(10)", base64.b64encode(b"\x01").decode(), b"\x00\x01"),
        ("bit(1)", True, True),
        ("decimal(18,2)", "+zI=", Decimal("-12.30")),
        ("datetime(6)", 1709208000123456, datetime(2024, 2, 29, 12, 0, 0, 123456)),
        ("datetime(3)", 1709208000123, datetime(2024, 2, 29, 12, 0, 0, 123000)),
        ("enum('a')", "a", "a"),
        ("float", 0.1, 0.10000000149011612),
        ("year(4)", 2024, 2024),
    ],
)
def test_a_value_is_decoded_to_what_the_database_holds(
    column_type: str, value: Any, expected: Any
) -> None:
    assert decoded(column_type, value) == expected


def test_bits_of_a_longer_type_do_not_fit_and_are_no_null() -> None:
    value = base64.b64encode(b"\x01\x02\x00").decode()
    assert decoded("bit(10)", value, unfit=[1]) is None


def test_rows_come_back_in_their_types_and_dates_of_zeros_as_null() -> None:
    def read(spark: str, *values: Any) -> list[Any]:
        return MysqlColumn("s.t", "v", spark).read(list(values)).to_pylist()

    assert read("float", "0.10000000149011612", None) == [0.10000000149011612, None]
    assert [str(one) for one in read("double", "-0", "-1e-300")] == ["0.0", "-1e-300"]
    assert read("boolean", "1", "0", None) == [True, False, None]
    assert read("date", "1969-12-31", None, "2024-00-10") == [date(1969, 12, 31), None, None]
    assert read("timestamp", "0000-00-00 00:00:00") == [None]
    assert read("timestamp_ntz", "1970-01-01 00:00:00.5") == [datetime(1970, 1, 1, 0, 0, 0, 500000)]
    assert read("decimal(20,0)", "18446744073709551615") == [Decimal(18446744073709551615)]
    assert read("binary", b"\x02\x01", None) == [b"\x02\x01", None]
    with pytest.raises(FrescoError, match="SOURCE_VALUE_UNFIT"):
        read("decimal(4,2)", "123.456")


def test_keys_become_constants_that_no_text_breaks_out_of() -> None:
    def literals(spark: str, array: pa.Array) -> list[str | None]:
        made = MysqlColumn("s.t", "v", spark).key
        assert made is not None
        return made(array)

    assert literals("string", pa.array(["it's \\ \0"])) == ["'it''s \\\\ \\0'"]
    assert literals("binary", pa.array([b"\x00'"])) == ["x'0027'"]
    assert literals("date", pa.array([date(2024, 2, 29)])) == ["DATE'2024-02-29'"]
    assert literals("bigint", pa.array([5])) == ["5"]
    assert literals("decimal(4,2)", pa.array([Decimal("1.50")])) == ["1.50"]
    assert MysqlColumn("s.t", "v", "double").key is None


RELATION = Relation(
    "s.t",
    (
        Column("id", "bigint"),
        Column("Odd `name", "string"),
        Column("f", "float"),
        Column("d", "date"),
        Column("b", "boolean"),
        Column("x", "double"),
        Column("m", "decimal(18,9)"),
    ),
    (0,),
)


@pytest.mark.parametrize(
    ("condition", "sent"),
    [
        ("id > 5 AND id <> 7", ["(r.`id` > 5)", "(NOT ((r.`id` = 7)))"]),
        ("`Odd ``name` = 'it\\'s \\\\'", ["(r.`Odd ``name` IN ('it''s \\\\'))"]),
        ("`Odd ``name` <> 'a'", []),
        ("`Odd ``name` > 'a'", []),
        ("f = 0.5", []),
        ("d >= DATE '2024-02-29'", ["(r.`d` >= CAST('2024-02-29' AS DATE))"]),
        ("id = 1 OR f > 2", []),
        ("id IS NULL OR b", ["((r.`id` IS NULL) OR r.`b`)"]),
        ("upper(`Odd ``name`) = 'A' AND id = 3", ["(r.`id` = 3)"]),
        ("m > 0.00000001", ["(r.`m` > 0.000000010)"]),
        ("10 % id > 1 AND id = 3", ["(r.`id` = 3)"]),
    ],
)
def test_a_condition_is_weakened_where_the_engines_differ(condition: str, sent: list[str]) -> None:
    tree = parse(f"SELECT id FROM s.t WHERE {condition}", {"s.t": RELATION})
    (one,) = reduction(tree).inputs
    assert weaker(one.filters, [column.name for column in RELATION.schema]) == sent


def test_a_connection_is_a_url_that_hides_its_password() -> None:
    url = parse_url("mariadb://me:p%40ss@db.example:3307/bank?ssl_ca=/ca.pem", "shop")
    assert (url.host, url.port, url.user, url.password) == ("db.example", 3307, "me", "p@ss")
    assert (url.database, url.ssl_ca) == ("bank", "/ca.pem")
    assert "p@ss" not in repr(url)
    assert kind_of_connection("MariaDB://x") is MARIADB
    assert kind_of_connection("postgresql://x") is POSTGRES
    for wrong in ("mariadb://nobody", "mariadb://u@h:x/", "mariadb://u@h/d?what=1"):
        with pytest.raises(FrescoError, match="SOURCE_CONNECTION"):
            parse_url(wrong, "shop")
