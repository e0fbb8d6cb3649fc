"""The servers behind a pipeline's sources, kept in its warehouse from each start to the next."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from streaming.ask.postgres.pg_catalog import read_origin
from streaming.captured.checked import Checked, failed
from streaming.captured.source_origin import Origin, check_origin
from streaming.configuration.pipeline_config import Config
from streaming.errors import FrescoError
from streaming.pipeline.plan import Pipeline
from streaming.runtime.manifests import ManifestStore
from streaming.runtime.snapshots import IntegratorState
from streaming.stages.integrator_stage import IntegratorStage

FILE = "origins.json"


class Origins:
    """The servers as they are now, against those of the last start."""

    def __init__(self, config: Config, pipeline: Pipeline) -> None:
        """Ask each PostgreSQL that is captured; changes nothing."""
        self._folder = config.warehouse / "_state"
        kept, last = self._kept(), _positions(self._folder)
        self.now: dict[str, Origin] = {}
        self.checks: list[Checked] = []
        for captured in pipeline.sources:
            name, source = captured.name, config.sources[captured.name]
            connection = source.secret()
            if connection is None or source.snapshots is not None or source.database != "postgres":
                continue
            try:
                origin = read_origin(connection, name)
            except FrescoError as error:
                self.checks.append(failed(f"server of {name}", error))
                continue
            if origin is not None:
                self.now[name] = origin
                self.checks.append(check_origin(name, origin, kept.get(name), last.get(name, -1)))

    def keep(self) -> None:
        """Remember them for the next start."""
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = self._folder / f".{FILE}.{os.getpid()}"
        noted = {name: asdict(one) for name, one in {**self._kept(), **self.now}.items()}
        draft.write_text(json.dumps(noted, indent=1))
        os.replace(draft, self._folder / FILE)

    def _kept(self) -> dict[str, Origin]:
        file = self._folder / FILE
        if not file.exists():
            return {}
        try:
            return {name: Origin(**one) for name, one in json.loads(file.read_text()).items()}
        except (ValueError, TypeError, AttributeError):
            raise FrescoError(
                "STATE_DAMAGED",
                "what is known of the sources' servers cannot be read",
                where=str(file),
                todo="restore the file from a backup of the warehouse's _state folder, or remove it;"
                " a server that was changed since the last start is not told of then",
            ) from None


def _positions(state: Path) -> Mapping[str, int]:
    """Source -> the last commit position that has a number."""
    folder = state / IntegratorStage.name / "manifests"
    last = ManifestStore(folder).latest() if folder.exists() else None
    positions = (
        IntegratorState.loaded(last.snapshot).intake["positions"] if last is not None else {}
    )
    return {source: int(position) for source, position in positions.items()}
