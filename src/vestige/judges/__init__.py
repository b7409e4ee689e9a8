"""Who grades an answer: a server, a local chat model, a replayed log, or rules grounded in the target's own answer."""
