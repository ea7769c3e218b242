"""How well the source transfers to the target: diagnostics, the judgement, the verdict, the gate."""
