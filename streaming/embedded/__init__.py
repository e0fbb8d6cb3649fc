"""The stack Fresco runs on, from real parts and without docker: Kafka, PostgreSQL, Debezium."""
