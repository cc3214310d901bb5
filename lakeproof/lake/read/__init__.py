"""Reading the lake, for users: tables at cuts and between them, and the changes from cut to cut.

Nothing is written here; writing belongs to `lakeproof.lake.cycle`.

    arrow/           without Spark
    spark/           with Spark
"""
