"""Attacks: ways to get out of a model what it was made to forget. They search and never judge themselves.

The table has their names on the command line, with a line about each.
"""

ATTACKS = {
    "relearn": "Tunes the model on some items again and asks others along the way.",
    "quantize": "Rounds the weights of the blocks to 8 or 4 bits.",
    "in-context": "Puts retain items before the question as facts.",
    "gcg": "Searches for a prompt after which the model says the answers of some items, and asks others with it.",
    "prefix": "Searches for a long prompt that moves the model towards the target, and asks other items with it.",
    "acr": "Searches for the shortest prompt after which the model says an item's text.",
}
