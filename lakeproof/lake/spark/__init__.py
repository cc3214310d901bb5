"""The Spark session: its settings, its driver and the meaning of its errors.

Computing with the session belongs to the rooms above; the names inside Delta to `lakeproof.lake.delta`.

    session.py   the session and its settings     driver_start.py   the driver's environment and output
    jars.py      Delta's jars                     java.py           the Java that Spark starts
    failures.py  errors, for people
"""
