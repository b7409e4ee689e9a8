"""Policy gradient on a causal language model: it samples, somebody else scores, and it learns to score high."""
