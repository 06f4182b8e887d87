"""Trials: one kernel on one case, over memory that shows what was written and read beside it."""
