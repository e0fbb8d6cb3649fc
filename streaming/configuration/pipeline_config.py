"""The configuration of a pipeline: one YAML file, checked whole before anything starts (DESIGN 13).

`${VAR}` and `${VAR:-default}` are replaced from the environment, and `connection_file` names a file
that holds a connection. Unknown keys are refused with the nearest valid one. Secrets are
`SecretStr`, so that printing a configuration never shows them, and no error repeats what stood in
the file.
"""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    SecretStr,
    Tag,
    ValidationError,
    model_validator,
)

from streaming.configuration.source_config import Section, SnapshotsConfig, SourceConfig
from streaming.configuration.yaml_file import read_yaml, substitute
from streaming.errors import FrescoError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")


def _checked_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError("a name is a letter and up to 62 letters, digits, '_' or '-'")
    return value


Name = Annotated[str, AfterValidator(_checked_name)]


class KafkaConfig(Section):
    """Where the topics are, and how the pipeline's own topics are made."""

    bootstrap: str = "localhost:9092"
    options: dict[str, SecretStr] = Field(default_factory=dict)
    """Kafka client properties (`security.protocol`, `sasl.username`, ...) for every client."""
    replication: Annotated[int, Field(ge=1)] = 1
    retention_hours: Annotated[int, Field(ge=1)] = 168
    create_source_topics: bool = False
    """Create a captured table's topic when it is missing (Debezium does at its first event)."""


class MetricsConfig(Section):
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 9464
    """0 takes a free port."""


class LimitsConfig(Section):
    """Sizes that bound memory and decide between the driver and Spark."""

    offsets_per_batch: Annotated[int, Field(ge=1)] = 400_000
    driver_rows: Annotated[int, Field(ge=0)] = 20_000_000
    """Rows of state and delta a view may hold in the driver (DuckDB); above it, Spark."""
    rewrite_bytes: Annotated[int, Field(ge=0)] = 256 << 20
    """Bytes of files a commit may rewrite by delta-rs; above it, Spark MERGE."""
    checkpoint_batches: Annotated[int, Field(ge=1)] = 50
    """A view manager folds its state after so many batches with rows."""
    session_ms: Annotated[int, Field(ge=1)] = 1000
    """Between two looks of isolated views at their sources, where no notification comes."""
    global_timeout_ms: Annotated[int, Field(ge=1)] = 300_000
    max_unit: Annotated[int, Field(ge=1)] = 1000
    """Source transactions that may become one unit before they are released as local."""


class Retention(Section):
    """How long the warehouse keeps what it recorded; without a value, everything."""

    updates_hours: Annotated[int, Field(ge=1)] | None = None
    """Hours since its commit that a transaction stays in `_updates`; `fresco verify` needs all."""


class Bound(Section):
    """Batches of so many source transactions; smaller ones wait so long for more."""

    rows: Annotated[int, Field(ge=1)]
    age_ms: Annotated[int, Field(ge=0)] = 1000


_WORD, _BOUND = "(word)", "(bound)"
Batching = Annotated[
    Annotated[Literal["greedy", "none"], Tag(_WORD)] | Annotated[Bound, Tag(_BOUND)],
    Discriminator(lambda value: _WORD if isinstance(value, str) else _BOUND),
]


class Config(Section):
    """A pipeline."""

    pipeline: Name
    warehouse: Path
    views: Path
    kafka: KafkaConfig = KafkaConfig()
    sources: dict[Name, SourceConfig]
    grouping: Literal["single", "disjoint", "atomic"] = "single"
    transactions_span: list[list[str]] = Field(default_factory=list)
    """Sets of relations that transactions update together: their views stay in one group."""
    globals: Literal["joined", "apart"] = "joined"
    """Whether all parts of a global transaction share one number, or each has its own. With `apart`
    nothing waits for a part but G-Strobe: for pipelines all of whose views are USING strobe."""
    on_span: Literal["halt", "warn"] = "warn"
    """What to do at a transaction that spans two disjoint groups all the same."""
    convergent: Literal["apart", "together"] = "apart"
    """Whether a view whose manager is convergent only gets a group of its own."""
    rates: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    """Updates per second of a relation, for the costs in `fresco plan` until they can be measured."""
    batching: Batching = "greedy"
    """How many ready rows become one warehouse transaction."""
    order: Literal["overtake", "prefix"] = "overtake"
    """Whether a row of the view update table may be published before an earlier one."""
    submission: Literal["declared", "sequential", "dependent"] = "declared"
    """What is submitted to the warehouse before what has committed (MVC 4.3)."""
    rel: Literal["direct", "with-actions"] = "direct"
    """How REL reaches the merge: from the integrator, or with the view managers' action lists."""
    metrics: MetricsConfig = MetricsConfig()
    limits: LimitsConfig = LimitsConfig()
    retention: Retention = Retention()
    allow_anomalies: bool = False
    umask: Annotated[str, Field(pattern="^0?[0-7]{3}$")] = "027"
    """Rights that files of the warehouse never get, beside what this process's own mask takes away."""
    """Lets a view use mode naive, which shows states that no source ever had."""
    spark: dict[str, str] = Field(default_factory=dict, repr=False)
    """Spark properties, over Fresco's own."""

    @model_validator(mode="after")
    def _names_its_sources(self) -> Config:
        if not self.sources:
            raise ValueError("at least one source is needed")
        for relation in self.rates:
            source, _, table = relation.partition(".")
            if source not in self.sources or table not in self.sources[source].tables:
                raise ValueError(f"rates.{relation}: no source has this table")
        return self

    @property
    def holds_back(self) -> bool:
        """Whether a merge may hold ready rows back when no message is left to come."""
        waits = isinstance(self.batching, Bound) and self.batching.age_ms > 0
        return waits or self.submission != "declared"

    def prefix(self, source: str) -> str:
        """Debezium's topic prefix of a source."""
        return self.sources[source].prefix or source

    def notifications(self, source: str) -> str:
        """Debezium's notification topic of a source."""
        return self.sources[source].notifications or f"{self.prefix(source)}.notifications"


def mask_files(config: Config) -> Config:
    """From here on this process, and what it starts, makes files without the rights in `umask`.

    Returns the configuration with the mask as it is, together with what the process was started with.
    """
    own = os.umask(0o077)
    mask = own | int(config.umask, 8)
    os.umask(mask)
    return config.model_copy(update={"umask": f"{mask:03o}"})


def load_config(path: str | Path) -> Config:
    """Read and check a configuration file; relative paths in it are relative to its folder.

    Raises:
        FrescoError: CONFIG_MISSING, CONFIG_SYNTAX, CONFIG_VARIABLE, CONFIG_KEY or CONFIG_VALUE.
    """
    file = Path(path)
    return parse_config(read_yaml(file), folder=file.resolve().parent, where=str(file))


def parse_config(raw: Any, *, folder: Path, where: str = "configuration") -> Config:
    """Check a configuration already read from YAML.

    Raises:
        FrescoError: CONFIG_VARIABLE, CONFIG_KEY or CONFIG_VALUE.
    """
    if not isinstance(raw, dict):
        raise FrescoError(
            "CONFIG_VALUE",
            "a configuration is a mapping of keys",
            where=where,
            todo="see conf/bank.yaml for an example",
        )
    values = substitute(raw, where)
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        raise _explain(error, where) from error
    resolved = {
        "warehouse": folder / config.warehouse,
        "views": folder / config.views,
        "sources": {name: _resolved(source, folder) for name, source in config.sources.items()},
    }
    return config.model_copy(update=resolved)


def _resolved(source: SourceConfig, folder: Path) -> SourceConfig:
    update: dict[str, Any] = {}
    if source.connection_file is not None:
        update["connection_file"] = folder / source.connection_file
    if source.snapshots is not None:
        update |= {"decimals": "string", "full_rows": True}  # as `fresco snapshots` publishes
        if source.snapshots.folder is not None:
            whole = folder / source.snapshots.folder
            update["snapshots"] = source.snapshots.model_copy(update={"folder": whole})
    return source.model_copy(update=update)


def _explain(error: ValidationError, where: str) -> FrescoError:
    """One mistake in the reader's words, with the nearest valid key for an unknown one.

    An unknown key comes first: a key that is missing is often one that is misspelt.
    """
    found = error.errors(include_input=False)
    first = next((one for one in found if one["type"] == "extra_forbidden"), found[0])
    place = ".".join(str(part) for part in first["loc"] if part not in (_WORD, _BOUND))
    if first["type"] == "extra_forbidden":
        valid = _keys_at(first["loc"][:-1])
        key = str(first["loc"][-1])
        near = difflib.get_close_matches(key, valid, n=1)
        advice = f"did you mean '{near[0]}'?" if near else f"valid keys: {', '.join(valid)}"
        return FrescoError(
            "CONFIG_KEY", f"unknown key '{key}'", where=f"{where}: {place}", todo=advice
        )
    return FrescoError(
        "CONFIG_VALUE",
        first["msg"],
        where=f"{where}: {place}",
        todo='see "Configuration" in docs/operations.md',
    )


def _keys_at(location: tuple[int | str, ...]) -> list[str]:
    """Valid keys of the section at a location of the configuration."""
    sections: dict[str, type[Section]] = {
        "kafka": KafkaConfig,
        "sources": SourceConfig,
        "metrics": MetricsConfig,
        "limits": LimitsConfig,
        "retention": Retention,
        "batching": Bound,
    }
    model = sections.get(str(location[0]), Config) if location else Config
    if model is SourceConfig and location[2:3] == ("snapshots",):
        model = SnapshotsConfig
    return sorted(model.model_fields)
