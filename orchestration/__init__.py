"""The Dagster location: assets, jobs, sensors and schedules, assembled from the configuration.

Nothing imports this package: assets and jobs don't know what starts them. Asset functions and job selections do not belong
here, nor does any work on a lake.

    definitions.py    the file that workspace.yaml names      location.py       which configuration, for whose run
    build.py          assembles the location                  component.py      the sources as a Dagster component
    sensors.py        drains, continuous compactions, held tables
    schedules.py      compaction, proof, maintenance, days; views, also by declarative automation
    alerts.py         notifies people of problems             outside_proofs.py proofs that commands made
    runs.py           Dagster's run records, read and removed start.py          on or off by default
    policies/         the decisions of all, as pure functions
    webserver.py      Dagster's web server, guarded           dev.py            `dagster dev` with it
    dagster.yaml      Dagster's settings on a developer's machine
"""
