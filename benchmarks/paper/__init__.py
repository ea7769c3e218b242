"""The paper's experiments: zero-shot transfer, ablation, continued training, negative transfer."""
