"""Spark's session, the jars and the Java under it.

In the order to read them: `artifacts` (versions), `java`, `apt`, `jars`, `spark_session`,
`local_session` (for a short piece of work), `class_archive` (a faster start of the JVM).
"""
