"""Logs of decisions as files: our own JSON lines and Parquet, VW's dsjson, Open Bandit csv.

Every format is read into and written from the same records, line by line in bounded memory.
`docs/evaluation.md` describes the columns.
"""
