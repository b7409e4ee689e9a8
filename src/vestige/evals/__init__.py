"""Evaluations, one file each: collecting asks the model and keeps everything; summarising needs no model."""
