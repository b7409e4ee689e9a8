"""Attacks: ways to get out of a model what it was made to forget. They search and never judge themselves.

The table has their names on the command line, with a line about each.
"""

ATTACKS = {
    "relearn": "Tunes the model on some items again and asks others along the way.",
    "quantize": "Rounds the weights of the blocks to 8 or 4 bits.",
    "in-context": "Puts retain items before the question as facts.",
}
