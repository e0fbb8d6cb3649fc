"""Epochs in a group table's log: which Delta version holds which, found without reading them all.

Epoch numbers, frontiers and times only grow with the version, so one is found by bisection over
the log's files. Commits of upkeep repeat the metadata of the epoch they leave in place; the newest
version of an epoch is taken, because its files are the last to be vacuumed.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow.fs as pafs

from streaming.warehouse.data_files import TableFolder
from streaming.warehouse.delta_table import commit_info
from streaming.warehouse.epoch import Epoch


@dataclass(frozen=True)
class VersionedEpoch:
    """An epoch and the newest Delta version that shows it."""

    version: int
    epoch: Epoch


def versions(place: TableFolder) -> list[int]:
    """Versions whose log entries are still there, ascending."""
    selector = pafs.FileSelector(place.path("_delta_log"), allow_not_found=True)
    names = (info.base_name for info in place.filesystem.get_file_info(selector))
    return sorted(int(name[:20]) for name in names if name.endswith(".json") and len(name) == 25)


def epoch_at(place: TableFolder, version: int) -> Epoch | None:
    """The epoch in the metadata of one version's commit; None when it has none."""
    return Epoch.from_json(commit_info(place, version).get("userMetadata"))


def all_epochs(place: TableFolder, newest: int) -> list[VersionedEpoch]:
    """Every epoch the log still tells of, ascending, up to a version."""
    wanted = [version for version in versions(place) if version <= newest]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda version: epoch_at(place, version), wanted))
    last: dict[int, VersionedEpoch] = {}
    for version, epoch in zip(wanted, found, strict=True):
        if epoch is not None:
            last[epoch.epoch] = VersionedEpoch(version, epoch)
    return [last[number] for number in sorted(last)]


class EpochLog:
    """The log of a group table up to one version."""

    def __init__(self, place: TableFolder, newest: int) -> None:
        self.place = place
        self._versions = [version for version in versions(place) if version <= newest]

    def last_where(self, holds: Callable[[Epoch], bool]) -> VersionedEpoch | None:
        """The newest version whose epoch satisfies `holds`; None when the log has none.

        Args:
            holds: true up to some epoch and false after it.
        """
        low, high = 0, len(self._versions)
        while low < high:
            middle = (low + high) // 2
            found = self._epoch_back(middle)
            if found is None or holds(found.epoch):
                low = middle + 1
            else:
                high = middle
        return self._epoch_back(low - 1)

    def next_after(self, before: VersionedEpoch | None) -> VersionedEpoch | None:
        """The oldest version of the epoch after one; the log's first epoch when None is given."""
        start = 0 if before is None else self._versions.index(before.version) + 1
        for version in self._versions[start:]:
            epoch = epoch_at(self.place, version)
            if epoch is not None and (before is None or epoch.epoch > before.epoch.epoch):
                return VersionedEpoch(version, epoch)
        return None

    def _epoch_back(self, at: int) -> VersionedEpoch | None:
        """The epoch at a position of the log or the nearest one before it."""
        while at >= 0:
            epoch = epoch_at(self.place, self._versions[at])
            if epoch is not None:
                return VersionedEpoch(self._versions[at], epoch)
            at -= 1
        return None
