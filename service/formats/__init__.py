"""Logs of decisions as files: our own JSON lines and Parquet, VW's dsjson, Open Bandit csv.

Every format is read line by line into the same records and written from them, so that a log of
any size passes in bounded memory. `docs/evaluation.md` describes the columns.
"""
