"""The command line: arguments in, engine functions called, a result on stdout and an exit status out.

What a command does belongs to `lakeproof.pipeline`.
"""
