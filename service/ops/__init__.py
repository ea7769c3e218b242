"""Logs, traces, supervision of tasks, tuning of processes, failpoints."""
