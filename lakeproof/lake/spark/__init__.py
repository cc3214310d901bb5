"""The Spark session: its settings, its driver and the meaning of its errors.

Computing with the session belongs to the rooms above.

    session.py       the session and its settings
    jars.py          Delta's jars, and jars and settings for a lake on S3
    java.py          the Java that Spark starts, and Spark's classes, read once
    driver.py        the driver: its start, its end, and one that is lost
    executors.py     whether executors reach the lake
    failures.py      errors, for people
    jvm.py           Spark's own plans, over py4j, and the rows that their scans gave
"""
