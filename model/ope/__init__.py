"""Offline evaluation: what a policy would have earned, estimated from what another one logged.

Everything here is a pure function of logged rounds, in one pass, with memory that does not grow
with the log. `docs/evaluation.md` states the assumptions.
"""
