"""Is the target like the source: the bound, the judgement, the verdict, the gate."""
