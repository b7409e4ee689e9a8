"""Who grades an answer: a server, a local chat model, or rules grounded in the target's own answer."""
