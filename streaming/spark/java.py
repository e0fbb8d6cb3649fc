"""Finds the Java that runs Spark, the embedded servers and Ivy: 17 or newer, as Spark 4.2 wants it.

Run as a program it makes sure there is one: where apt may be used (root on Debian or Ubuntu) a
missing Java is installed, elsewhere the command that installs it is said in one line.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys

from streaming.errors import FrescoError
from streaming.spark.apt import install_one_of, may_install

OLDEST_JAVA = 17
APT_PACKAGES = ("openjdk-21-jre-headless", "openjdk-17-jre-headless", "default-jre-headless")

LOG_OPTIONS = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSZ",
)
"""Options that make slf4j-simple, which all embedded servers log with, tell the time."""

SHORT_LIVED = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For a JVM that lives for minutes: the full compiler takes more processor time than it saves (a driver
with five views and 60 transactions, its servers included: 66 CPU s instead of 146)."""

_TODO = (
    "install Java 17 or newer (Debian and Ubuntu: apt-get install openjdk-17-jre-headless; "
    "Fedora: dnf install java-21-openjdk-headless; macOS: brew install openjdk@21) "
    "or point JAVA_HOME at one"
)


def java_command() -> str:
    """Path of `java`: of `$JAVA_HOME` when set, else the first on the path.

    Raises FrescoError EMBEDDED_JAVA_MISSING when there is none or it is older than 17.
    """
    home = os.environ.get("JAVA_HOME")
    found = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not found or not os.access(found, os.X_OK):
        raise FrescoError("EMBEDDED_JAVA_MISSING", "Java was not found", todo=_TODO)
    version = _feature_version(found)
    if version < OLDEST_JAVA:
        raise FrescoError(
            "EMBEDDED_JAVA_MISSING", f"Java {version} is too old", where=found, todo=_TODO
        )
    return found


@functools.cache
def java_says(java: str) -> str:
    """What a `java` command says of its version; it is asked once."""
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    return said.stderr + said.stdout


def _feature_version(java: str) -> int:
    """The feature release (17, 21, ...) of a `java` command; 0 when it does not say."""
    match = re.search(r'version "(?:1\.)?(\d+)', java_says(java))
    return int(match.group(1)) if match else 0


def install_java() -> None:
    """Install the first of `APT_PACKAGES` that this Debian or Ubuntu has; needs root.

    Raises FrescoError EMBEDDED_JAVA_MISSING when none can be installed.
    """
    if install_one_of(APT_PACKAGES):
        return
    raise FrescoError("EMBEDDED_JAVA_MISSING", "apt-get installed no Java", todo=_TODO)


def main() -> None:
    """Exit 0 with a usable Java in place, else 1 with one line that says what to do."""
    try:
        try:
            java_command()
        except FrescoError:
            # A JAVA_HOME that points at nothing usable is the user's to correct.
            if not may_install() or os.environ.get("JAVA_HOME"):
                raise
            install_java()
            java_command()
    except FrescoError as failure:
        sys.exit(str(failure))


if __name__ == "__main__":
    main()
