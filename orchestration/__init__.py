"""The Dagster location: assets, jobs, sensors and schedules, assembled from the configuration.

Nothing imports this package: assets and jobs don't know what starts them. Asset functions and job selections do not belong
here, nor does any work on a lake.

    definitions.py    the file that workspace.yaml names      build.py          assembles the location
    find_config.py    finds the configuration                 runs.py           reads Dagster's run records
    sensors.py        drains, continuous compactions, held tables schedules.py      compaction, proof, maintenance, views
    component.py      the sources as a Dagster component  narrow.py            some of a configuration's sources alone
    location.py       the location of a configuration file    own_job.py     the job of whose run this process is
    start.py          on or off by default                view_conditions.py   views by declarative automation
    alert_sensor.py   notifies people of problems          problems.py          what is wrong, as Dagster has it
    policies/         the decisions of both, as pure functions
    webserver.py      Dagster's web server, guarded           request_guard.py  the rules of that guard
    dev.py            `dagster dev` with the guarded server   dagster.yaml      Dagster's settings on a developer's machine
"""
