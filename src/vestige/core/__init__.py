"""Content ids, strict settings, atomic files, seeds, items and estimates. Nothing here imports torch."""
