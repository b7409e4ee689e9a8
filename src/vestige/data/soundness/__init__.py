"""Whether a data set can tell forgetting from guessing: checks that need no model, and data without what leaks."""
