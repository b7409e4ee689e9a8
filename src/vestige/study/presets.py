"""Settings that were found for the built-in tiny model, with where they come from."""

from vestige.training.settings import TrainingSettings

TINY_FINETUNE = TrainingSettings(
    epochs=40,
    batch_size=16,
    learning_rate=1.5e-3,
    schedule="one_cycle",
    warmup_epochs=4.0,
    weight_decay=0.01,
    loss_on="all",
    bucket=True,
    stop_when_exact=True,
)
"""Learns sample dataset 1 and the factual questions to the last answer; docs/tiny.md has the trials."""

TINY_RATES = {"ga": 3e-5, "gd": 5e-5, "kl": 5e-5, "idk_gd": 1e-4, "dpo": 1e-4}
"""Learning rates of the demo, one a method; `python -m benchmarks.rates` measures the grid they come from."""
