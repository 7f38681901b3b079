"""Files in and out: Parquet, CSV, JSON and Delta in directories and buckets that COPY may use.

`places.py` says where, `columns.py` how values look there, `reading.py` and `writing.py` move rows.
All of it blocks, and is called on threads.
"""
