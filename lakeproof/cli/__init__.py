"""The command line: arguments in, engine functions called, a result on stdout and an exit status out.

The work of a command does not belong here (`lakeproof.commands`).

    main.py             parses, runs one command, turns errors into one line and an exit status
    arguments.py        every command with its function, arguments and help text
    context.py          what every command receives: configuration, progress, stop request, Spark
    source_commands.py  commands that talk to PostgreSQL    lake_commands.py     commands that work on the lake
    machine_commands.py init, fetch-jars, inspect, help     status_page.py       the text of `status`
    results.py          results as JSON, back from it, and as text
    interruption.py     Ctrl-C and SIGTERM                  progress.py          events on stderr
    view_commands.py    the command that replaces a view    pipes.py             events and result to a Dagster run
"""
