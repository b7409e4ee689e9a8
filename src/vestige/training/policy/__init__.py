"""Policy gradient on a causal language model: it samples, a third party scores, and it learns to score high."""
