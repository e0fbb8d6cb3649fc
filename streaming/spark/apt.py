"""Installs a Debian package that a set-up step needs, where this process may: root, with apt."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence


def may_install() -> bool:
    """Whether packages can be installed here."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install_one_of(packages: Sequence[str]) -> bool:
    """Install the first of `packages` that this Debian or Ubuntu has; False when it has none."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "-qq", "update"], env=environment, check=False)
    for package in packages:
        print(f"installing {package}", file=sys.stderr, flush=True)
        command = ["apt-get", "-qq", "install", "-y", "--no-install-recommends", package]
        if subprocess.run(command, env=environment, check=False).returncode == 0:
            return True
    return False
