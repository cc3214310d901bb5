"""The Dagster location: assets, jobs, sensors and schedules, assembled from the configuration.

Nothing imports this package: assets and jobs don't know what starts them. Asset functions and job selections do not belong
here, nor does any work on a lake.

    definitions.py    the file that workspace.yaml names      build.py          assembles the location
    find_config.py    finds the configuration                 runs.py           reads Dagster's run records
    sensors.py        one drain per slot; copies held tables  schedules.py      compaction, proof, maintenance, views
    compaction_sensor.py   one continuous compaction per source or group
    policies/         the decisions of both, as pure functions
    webserver.py      Dagster's web server, guarded           request_guard.py  the rules of that guard
    dev.py            `dagster dev` with the guarded server   dagster.yaml      Dagster's settings on a developer's machine
"""
