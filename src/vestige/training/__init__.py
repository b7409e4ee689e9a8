"""The training loop and its parts: batches, schedules, checkpoints, adapters, reference quantities."""
