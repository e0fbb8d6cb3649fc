"""The step protocol under every stage, exactly once over Kafka, manifests and Delta (DESIGN 9).

A step writes its *manifest* (put-if-absent), then sends its messages, then applies what it commits;
each of these may be repeated. The *fence* keeps an older driver of the same stage out.

In the order to read them: `step` (the protocol), `manifests`, `fence`, `inbox` (each message once),
`staging` (rows too large for a message), `stage_queries` (one Spark query a stage), `kafka`,
`kafka_clients`, `pulse`, `heartbeat`, `stage_names`, `snapshots` (what each stage keeps, as classes),
`stage_progress` (how far others are), `restarts`, `error_owner` (whose trouble an error is).

Example: the merge dies after its manifest and before Delta; the next start finds the manifest, commits
what it says (the epoch's number makes a second commit a no-op), and goes on.
"""
