"""The only package that knows file names: locations in a run, contents of records, and their provenance."""
