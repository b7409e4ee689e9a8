"""Evaluations, one file each: collecting asks the model and keeps everything; summarising is pure and needs no model."""
