"""wal2delta: PostgreSQL to Delta Lake over pgoutput, provably equal to the source at an LSN."""
