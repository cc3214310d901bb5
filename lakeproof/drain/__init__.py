"""The drain: from the replication stream to durable segments, and only then an acknowledgement.

Decoding belongs to `lakeproof.pgoutput`, the connection to `lakeproof.postgres`, the format to `lakeproof.landing`.

    main thread                                        worker thread
    stream.read → buffer (whole transactions) ─queue─► decode → segment → manifest
         ▲  ticks, answers pings                            │
         └── progress.acknowledge ◄──── flushed ────────────┘
"""
