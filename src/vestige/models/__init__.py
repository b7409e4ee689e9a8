"""Models: loading, chat templates and answer spans, scoring, generation, the built-in and the planted ones."""
