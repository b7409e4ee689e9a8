"""The audit: from item scores on disk to formats, gains and verdicts. Nothing here queries a model."""
