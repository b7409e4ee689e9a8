"""The only room that knows file names: where things are in a run, what their records hold, what made them."""
