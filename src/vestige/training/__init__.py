"""The one visible loop, and what it needs: batches, schedules, checkpoints, adapters, reference quantities."""
