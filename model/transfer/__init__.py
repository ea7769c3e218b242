"""How well the source transfers to the target: the bound, the judgement, the verdict, the gate."""
