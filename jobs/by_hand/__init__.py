"""The jobs that only a person launches, from the launchpad; the work is in `lakeproof.commands`."""
