"""The Java parts of the stacks and of Spark: their versions and Maven coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

KAFKA_VERSION = "4.2.0"

DEBEZIUM_VERSION = "3.6.1.Final"

DELTA_VERSION = "4.4.0"

SPARK_VERSION = "4.2.0"

SCALA_VERSION = "2.13"


@dataclass(frozen=True)
class Artifact:
    """A Maven coordinate."""

    group: str
    name: str
    version: str


@dataclass(frozen=True)
class ArtifactSet:
    """Artifacts that are resolved together, with what they need, into one folder."""

    name: str
    title: str
    artifacts: Sequence[Artifact]
    excludes: Sequence[tuple[str, str]] = ()
    subfolder: str = ""
    """Folder inside the set's folder that takes the jars (a Connect plugin needs one)."""


# Without a binding of slf4j, Kafka and Connect fail silently.
_SLF4J_BINDING = Artifact("org.slf4j", "slf4j-simple", "1.7.36")

KAFKA_SET = ArtifactSet(
    "kafka",
    "Kafka broker",
    (
        Artifact("org.apache.kafka", f"kafka_{SCALA_VERSION}", KAFKA_VERSION),
        _SLF4J_BINDING,
    ),
)

CONNECT_SET = ArtifactSet(
    "connect",
    "Kafka Connect",
    (
        Artifact("org.apache.kafka", "connect-runtime", KAFKA_VERSION),
        Artifact("org.apache.kafka", "connect-json", KAFKA_VERSION),
        _SLF4J_BINDING,
    ),
)

DEBEZIUM_SET = ArtifactSet(
    "debezium",
    "Debezium for PostgreSQL",
    (Artifact("io.debezium", "debezium-connector-postgres", DEBEZIUM_VERSION),),
    subfolder="debezium-connector-postgres",
)

SPARK_SET = ArtifactSet(
    "spark",
    "Delta Lake and Kafka for Spark",
    (
        Artifact("io.delta", f"delta-spark_4.2_{SCALA_VERSION}", DELTA_VERSION),
        Artifact("org.apache.spark", f"spark-sql-kafka-0-10_{SCALA_VERSION}", SPARK_VERSION),
    ),
    # pyspark has both already.
    excludes=(
        ("org.apache.hadoop", "hadoop-client-api"),
        ("org.apache.hadoop", "hadoop-client-runtime"),
    ),
)

ARTIFACT_SETS = (KAFKA_SET, CONNECT_SET, DEBEZIUM_SET, SPARK_SET)
