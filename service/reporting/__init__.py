"""Reports about an experiment: the report, its plots, its transfer history."""
