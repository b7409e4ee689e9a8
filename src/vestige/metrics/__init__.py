"""Pure functions on arrays and strings: numbers in, numbers out. No models, no files, no torch."""
