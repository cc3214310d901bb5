"""Whole transactions out of the stream's messages, within bounds of memory and disk.

Values are not decoded here: only tags, and the few messages that begin, end or abort a transaction, are read.

    buffer.py    cuts the stream into units       streamed.py  chunks of transactions that are still open
    spool.py     one waiting transaction          spill.py     its bytes on disk
    units.py     what is handed to the decoder
"""
