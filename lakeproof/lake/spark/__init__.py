"""The Spark session: its settings, its driver and the meaning of its errors.

Computing with the session belongs to the rooms above.

    session.py   the session and its settings     driver_start.py   the driver's environment and output
    jars.py      Delta's jars                     java.py           the Java that Spark starts
    s3.py        jars and settings for a lake on S3
    cluster.py   settings that follow the master  executors.py      whether executors reach the lake
    failures.py  errors, for people
    scanned_rows.py  rows that scans gave         jvm.py            Spark's own plans, over py4j
"""
