"""Settings of a Debezium connector and its converter that decide which events come and what they mean.

One list: `fresco doctor` and each start judge a connector by it, and docs/doctor.md shows it. A
setting that is not in it may have any value: the events say the same. What is left out needs no entry:
with `tombstones.on.delete`, `schemas.enable` and `message.key.columns` either form is read, and columns
whose types `interval.handling.mode` and `hstore.handling.mode` are about are in no view.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from streaming.captured.checked import Checked, Rule

Config = Mapping[str, str]
WRONG_SETTING = Rule(
    "SOURCE_CONNECTOR_SETTING",
    "wrong",
    "a setting of the connector or its converter, of those below",
)
NO_CONNECTOR = Rule(
    "SOURCE_CONNECTOR_MISSING",
    "warning",
    "no connector of the worker has the source's `topic.prefix`",
)
HAS_FAILED = Rule(
    "SOURCE_CONNECTOR_FAILED", "warning", "the connector, or a task of it, has failed"
)
NO_WORKER = Rule("SOURCE_CONNECT_UNREACHABLE", "warning", "the worker does not tell its connectors")
NAN = Rule(
    "SOURCE_DECIMALS_NAN",
    "warning",
    "PostgreSQL's NUMERIC columns under `decimals: precise`: NaN and the infinities come as NULL",
)
RULES = (WRONG_SETTING, NO_CONNECTOR, HAS_FAILED, NO_WORKER, NAN)


@dataclass(frozen=True)
class Wanted:
    """What a source's own configuration asks of its connector.

    Attributes:
        tables: "schema.table" of each captured table.
        columns: "schema.table.column" of each column that views may read.
        mysql: a MariaDB or MySQL.
    """

    source: str
    prefix: str
    notifications: str
    tables: Sequence[str]
    columns: Sequence[str]
    snapshot: bool = True
    metadata: bool = True
    decimals: str = "precise"
    mysql: bool = False


Judge = Callable[[str, Wanted, Config], bool]


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        name: as the connector's configuration has it; one that ends in `*` stands for all that begin so.
        default: its value where it is not set.
        right: whether a value neither loses nor alters what Fresco reads.
        make: the value to set; {prefix}, {notifications}, {decimals} and {snapshot} are the source's.
            "" is to leave the setting out.
        loses: what happens with another value.
        of: "both", or the one kind of database that has the setting.
    """

    name: str
    default: str
    right: Judge
    make: str
    loses: str
    of: str = "both"

    def found(self, config: Config) -> Iterator[tuple[str, str]]:
        """The setting's name and value in a configuration; each of a family."""
        if self.name.endswith("*"):
            yield from (
                (key, value) for key, value in config.items() if key.startswith(self.name[:-1])
            )
        else:
            yield self.name, str(config.get(self.name, self.default)).strip()


# Judges -----------------------------------------------------------------------------------------


def among(*values: str) -> Judge:
    """One of the values, in any case."""
    return lambda value, wanted, config: value.lower() in {one.lower() for one in values}


def matches(patterns: str, name: str) -> bool:
    """Whether a name fits one of Debezium's comma-separated patterns, whole and in any case."""
    return any(
        re.fullmatch(one.strip().replace("\\,", ","), name, re.IGNORECASE)
        for one in re.split(r"(?<!\\),", patterns)
        if one.strip()
    )


def _names(of: str) -> Callable[[Wanted], Sequence[str]]:
    def schemas(wanted: Wanted) -> Sequence[str]:
        return [one.partition(".")[0] for one in wanted.tables]

    if of == "schemas":
        return schemas
    return lambda wanted: wanted.columns if of == "columns" else wanted.tables


def includes(of: str) -> Judge:
    """A list that is empty or holds all that is captured."""
    names = _names(of)
    return lambda value, wanted, config: (
        not value or all(matches(value, one) for one in names(wanted))
    )


def excludes(of: str) -> Judge:
    """A list that holds nothing that is captured."""
    names = _names(of)
    return lambda value, wanted, config: not any(matches(value, one) for one in names(wanted))


HARMLESS = (
    "org.apache.kafka.connect.transforms.InsertHeader",
    "org.apache.kafka.connect.transforms.DropHeaders",
    "org.apache.kafka.connect.transforms.HeaderFrom",
    "io.debezium.transforms.tracing.ActivateTracingSpan",
)
"""Transforms that leave topic, key and value as they are."""


def _transforms(value: str, wanted: Wanted, config: Config) -> bool:
    names = [one.strip() for one in value.split(",") if one.strip()]
    return all(config.get(f"transforms.{name}.type", "") in HARMLESS for name in names)


def _snapshot_mode(value: str, wanted: Wanted, config: Config) -> bool:
    taking = ("initial", "always", "when_needed")
    sparing = ("never", "no_data", "schema_only", "recovery", "schema_only_recovery")
    return value.lower() in (taking if wanted.snapshot else sparing)


def _overridden(value: str, wanted: Wanted, config: Config) -> bool:
    named = {one.strip() for one in value.split(",")}
    return not wanted.snapshot or not any(
        one == table or one.endswith(f".{table}") for one in named for table in wanted.tables
    )


_JSON = "org.apache.kafka.connect.json.JsonConverter"
_STRATEGY = "io.debezium.schema.SchemaTopicNamingStrategy"
_TRANSACTIONS = "io.debezium.pipeline.txmetadata.DefaultTransactionMetadataFactory"

PLACEHOLDER = "unavailable.value.placeholder"
"""Any text will do that is no row's: it is read from here (`pipeline.source_schemas`)."""

SETTINGS: tuple[Setting, ...] = (
    # Which events come
    Setting("provide.transaction.metadata", "false",
            lambda value, wanted, config: not wanted.metadata or value.lower() == "true",
            "true", "no event says its transaction"),
    Setting("skipped.operations", "t", among("none"), "none", "a TRUNCATE, or more, does not come"),
    Setting("table.include.list", "", includes("tables"), "", "a table outside of it never comes"),
    Setting("table.exclude.list", "", excludes("tables"), "", "a table in it never comes"),
    Setting("schema.include.list", "", includes("schemas"), "", "a schema outside of it never comes",
            "postgres"),
    Setting("schema.exclude.list", "", excludes("schemas"), "", "a schema in it never comes",
            "postgres"),
    Setting("database.include.list", "", includes("schemas"), "",
            "a database outside of it never comes", "mysql"),
    Setting("database.exclude.list", "", excludes("schemas"), "", "a database in it never comes",
            "mysql"),
    Setting("gtid.source.includes", "", among(""), "", "other servers' transactions do not come",
            "mysql"),
    Setting("gtid.source.excludes", "", among(""), "", "these servers' transactions do not come",
            "mysql"),
    Setting("snapshot.mode", "initial", _snapshot_mode, "{snapshot}",
            "the snapshot that sources.S.snapshot says does not come, or one comes that is not said"),
    Setting("snapshot.isolation.mode", "serializable", among("serializable", "repeatable_read"),
            "repeatable_read", "a snapshot's rows are of several moments"),
    Setting("snapshot.locking.mode", "minimal", lambda value, wanted, config: value != "none",
            "minimal", "a snapshot's rows and its position in the log are of several moments",
            "mysql"),
    Setting("snapshot.include.collection.list", "", includes("tables"), "",
            "the snapshot lacks the tables outside of it"),
    Setting("snapshot.select.statement.overrides", "", _overridden, "",
            "the snapshot holds what another statement selects"),
    Setting("slot.drop.on.stop", "false", among("false"), "false",
            "what changes while the connector is stopped does not come", "postgres"),
    Setting("errors.tolerance", "none", among("none"), "none", "records that fail are left out"),
    Setting("event.processing.failure.handling.mode", "fail", among("fail"), "fail",
            "events that fail are left out"),
    Setting("inconsistent.schema.handling.mode", "fail", among("fail"), "fail",
            "events of a table that the connector does not know are left out", "mysql"),
    Setting("producer.override.acks", "all", among("all", "-1"), "all",
            "events are lost when a broker fails"),
    Setting("producer.override.max.in.flight.requests.per.connection", "1", among("1"), "1",
            "events change their order when one is sent again"),
    # Where they come
    Setting("topic.naming.strategy", _STRATEGY, among(_STRATEGY), _STRATEGY,
            "topics have other names"),
    Setting("topic.delimiter", ".", among("."), ".", "topics have other names"),
    Setting("topic.transaction", "transaction", among("transaction"), "transaction",
            "BEGIN and END come elsewhere"),
    Setting("notification.enabled.channels", "",
            lambda value, wanted, config: not wanted.snapshot or "sink" in re.split(r"\s*,\s*", value),
            "sink", "nobody says when the snapshot is complete"),
    Setting("notification.sink.topic.name", "",
            lambda value, wanted, config: not wanted.snapshot or value == wanted.notifications,
            "{notifications}", "nobody says when the snapshot is complete"),
    # What they mean
    Setting("transaction.metadata.factory", _TRANSACTIONS, among(_TRANSACTIONS), _TRANSACTIONS,
            "transactions are told in another form"),
    Setting("time.precision.mode", "adaptive", among("adaptive", "adaptive_time_microseconds"),
            "adaptive", "dates and times are read in another unit: they come out in 1970"),
    Setting("decimal.handling.mode", "precise",
            lambda value, wanted, config: value.lower() == wanted.decimals, "{decimals}",
            "numbers are rounded, or read as others; sources.S.decimals says the same word"),
    Setting("bigint.unsigned.handling.mode", "long", among("long"), "long",
            "a BIGINT UNSIGNED comes as base64, which is not read", "mysql"),
    Setting("binary.handling.mode", "bytes", among("bytes", "base64"), "bytes",
            "other bytes are read"),
    Setting(PLACEHOLDER, "__debezium_unavailable_value",
            lambda value, wanted, config: bool(value) and not value.startswith("hex:"),
            "__debezium_unavailable_value",
            "the placeholder of a value that did not change is taken for the value"),
    Setting("column.include.list", "", includes("columns"), "", "columns outside of it do not come"),
    Setting("column.exclude.list", "", excludes("columns"), "", "columns in it do not come"),
    Setting("column.mask.*", "", excludes("columns"), "", "values come masked"),
    Setting("column.truncate.*", "", excludes("columns"), "", "values come cut short"),
    Setting("converters", "", among(""), "", "values come in a form of their own"),
    Setting("field.name.adjustment.mode", "none", among("none"), "none", "columns have other names"),
    Setting("transforms", "", _transforms, "",
            "events are flattened, filtered, renamed or sent elsewhere"),
    Setting("value.converter", "", among(_JSON), _JSON,
            "a worker's own converter and its settings cannot be seen: the connector must name it"),
    Setting("value.converter.replace.null.with.default", "true", among("false"), "false",
            "NULL comes as the column's DEFAULT"),
    Setting("value.converter.decimal.format", "BASE64",
            lambda value, wanted, config: value.upper() == "BASE64" or wanted.decimals == "string",
            "BASE64", "numbers without a point are read as others"),
)  # fmt: skip


def check_decimals(wanted: Wanted, numbers: Sequence[str]) -> Iterator[Checked]:
    """Whether NUMERIC columns may hold what comes as NULL.

    Args:
        numbers: "schema.table.column" of each of them.
    """
    if numbers and wanted.decimals == "precise" and not wanted.mysql:
        yield NAN.found(
            f"decimals of {wanted.source}",
            f"a NaN or an infinity in {', '.join(numbers[:5])}{', ...' if len(numbers) > 5 else ''} would"
            " come as NULL, and nobody could tell",
            "set decimal.handling.mode=string at the connector, let it take a new snapshot, and set"
            f" sources.{wanted.source}.decimals: string; or let a CHECK keep them out of the table",
        )


def check_connector(name: str, config: Config, wanted: Wanted) -> list[Checked]:
    """What a connector's configuration loses or alters; its values are never shown."""
    check = f"connector {name} of {wanted.source}"
    kind = "mysql" if wanted.mysql else "postgres"
    found = []
    for setting in SETTINGS:
        if setting.of not in ("both", kind):
            continue
        for key, value in setting.found(config):
            if not setting.right(value, wanted, config):
                found.append(_wrong(check, setting, key in config, wanted))
                break
    return found or [Checked(check, "ok", f"{len(SETTINGS)} settings that matter are right")]


def _wrong(check: str, setting: Setting, there: bool, wanted: Wanted) -> Checked:
    value = setting.make.format(
        prefix=wanted.prefix,
        notifications=wanted.notifications,
        decimals=wanted.decimals,
        snapshot="initial" if wanted.snapshot else "no_data",
    )
    todo = f"set {setting.name}={value} in the connector's configuration"
    if not value:
        todo = f"take {setting.name} out of the connector's configuration, or what is captured out of it"
    how = "" if there else " (not set, which means its default)"
    return WRONG_SETTING.found(
        check,
        f"{setting.name}{how}: {setting.loses}",
        f"{todo}; what has been sent so far stays as it is: take a new snapshot where it matters",
    )


def settings_table() -> str:
    """The list as docs/doctor.md shows it."""
    lines = ["| setting | right | with another value |", "|---|---|---|"]
    words = {
        "{decimals}": "as `sources.S.decimals`",
        "{notifications}": "as `sources.S.notifications`",
    }
    words["{snapshot}"] = "as `sources.S.snapshot`: `initial`, or `no_data`"
    for one in SETTINGS:
        right = words.get(one.make, f"`{one.make}`" if one.make else "nothing that is captured")
        if one.right is not None and one.name.endswith("include.list"):
            right = "not set, or all that is captured"
        elif one.name == PLACEHOLDER:
            right = "any text that no row has; without `hex:`"
        elif one.name in ("transforms", "converters") or one.name.startswith("gtid."):
            right = "none"
        where = {"postgres": " (PostgreSQL)", "mysql": " (MariaDB, MySQL)"}.get(one.of, "")
        lines.append(f"| `{one.name}`{where} | {right} | {one.loses} |")
    return "\n".join(lines) + "\n"
