"""The drain: from the replication stream to durable segments, and only then an acknowledgement.

Decoding belongs to `wal2delta.pgoutput`, the connection to `wal2delta.postgres`, the format to `wal2delta.landing`.

    main thread                                        worker thread
    stream.read → buffer (whole transactions) ─queue─► decode → segment → manifest
         ▲  ticks, answers pings                            │
         └── progress.acknowledge ◄──── flushed ────────────┘
"""
