"""The other arm of each benchmark: what people use today, with settings that are fair to it."""
