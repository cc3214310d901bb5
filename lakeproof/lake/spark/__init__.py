"""The Spark session: its settings, its driver and the meaning of its errors.

Computing with the session belongs to the rooms above.

    session.py        the session and its settings
    jars.py           Delta's jars
    s3.py             jars and settings for a lake on S3
    java.py           the Java that Spark starts
    class_archive.py  Spark's classes, read once
    driver_start.py   the driver's environment and output
    driver_end.py     how a driver ended
    lost_driver.py    a driver that is gone, and a session's end
    cluster.py        settings that follow the master
    executors.py      whether executors reach the lake
    error_classes.py  the classes of Spark's errors
    failures.py       errors, for people
    scanned_rows.py   rows that scans gave
    jvm.py            Spark's own plans, over py4j
"""
