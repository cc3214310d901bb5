"""The drain: from the replication stream to durable segments, and only then an acknowledgement.

Decoding (`lakeproof.pgoutput`), connections (`lakeproof.postgres`) and formats (`lakeproof.landing`) do not belong here.

    main thread                                        worker thread               writer thread
    stream.read → buffer (whole transactions) ─queue─► decode → segment ─bounded─► Parquet
         ▲  ticks, answers pings                            │ sealed                  │
         │                                                  ▼                         ▼
         └── acknowledge ◄──────── flushed ──────────── manifest ◄────────────── files, durable   (the ending thread)

    supervisor.py          connection after connection
    loop.py                one connection's life
    flush.py               the worker thread
    segment_ends.py        the ending thread
    worker_errors.py       errors of the worker thread
    acknowledge.py         the one place that moves the slot
    transactions/          messages to whole transactions
    catalog/               the source's catalog beside the stream
    slot_health.py         how long the slot will last
    counts.py              what flushes add up to
    until.py               when a drain ends
    stuck.py               a stream that does not go on
    pulse.py               its present state, for others
    progress.py            reports of large transactions, and of its rates
"""

__all__ = ["counts", "pulse", "slot_health", "supervisor", "until"]
