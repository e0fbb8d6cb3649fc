"""The system user that a database server runs as when Fresco runs as root: none of them wants root."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from pathlib import Path

from streaming.demo.embedded.server_process import Account
from streaming.errors import FrescoError


def server_account(program: str, names: Sequence[str], needed: Sequence[Path]) -> Account | None:
    """The user to run as: None for ourselves, else (root) the first of `names` that exists.

    `needed` are folders the server must reach; when one lies below a folder closed to others, the
    server keeps the right to pass it rather than having that folder's permissions changed.

    Raises FrescoError EMBEDDED_START_FAILED when there is no such user.
    """
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = next((known[name] for name in names if name in known), None)
    if entry is None:
        raise FrescoError(
            "EMBEDDED_START_FAILED",
            f"{program} refuses to run as root",
            todo=f"create a system user named {names[0]}, or run as another user",
        )
    above = {folder for path in needed for folder in [path, *path.parents]}
    closed = any(not folder.stat().st_mode & 0o001 for folder in above)
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, reads_all=closed)
