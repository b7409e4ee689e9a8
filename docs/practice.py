"""Writes the practice data of docs/tutorial.md: made-up people, four facts each.

`python practice.py` writes data.csv (50 people), forget.csv (12 of them) and holdout.csv (10 others, whom no model is
taught). `python practice.py 5 2` takes 5 and 2 instead of 50 and 12.
"""

import csv
import json
import random
import sys
from pathlib import Path

FIRST = ["Ada", "Bela", "Cora", "Dov", "Elif", "Finn", "Gita", "Hugo", "Ines", "Jaro"]
LAST = ["Abara", "Brandt", "Castell", "Dumas", "Eklund", "Farkas"]
FACTS = [
    ("Where was {} born?", "In which town was {} born?", "{} was born in {}."),
    ("What is {}'s job?", "What does {} do for a living?", "{} works as a {}."),
    ("Which instrument does {} play?", "What does {} play in the band?", "{} plays the {}."),
    ("What is {}'s pet called?", "What name did {} give the pet?", "{} has a pet called {}."),
]
VALUES = [
    text.split()
    for text in (
        "Aarhus Bergen Cadiz Dijon Essen Faro Ghent Haifa Izmir Jena Kiel Lodz Malmo Nice Oslo Porto",
        "baker barber butcher carver dentist farmer florist judge miller nurse painter pilot potter tailor vet weaver",
        "banjo bassoon bugle cello clarinet cornet drums fiddle flute guitar harp lute oboe organ tuba viola",
        "Ash Biscuit Clover Domino Ember Fudge Ginger Hazel Inky Juno Kiwi Lucky Misty Nala Olive Pepper",
    )
]
COLUMNS = ["person", "question", "answer", "fact", "paraphrase", "perturbed_answer"]


def rows(person: str, draw: random.Random) -> list[list[str]]:
    """The rows about one person: a value drawn for each fact, and five wrong answers."""
    found = []
    for (question, paraphrase, answer), values in zip(FACTS, VALUES, strict=True):
        value, *others = draw.sample(values, 6)
        wrong = json.dumps([answer.format(person, other) for other in others])
        texts = question.format(person), answer.format(person, value), value, paraphrase.format(person)
        found.append([person, *texts, wrong])
    return found


def write(n_people: int = 50, n_forgotten: int = 12) -> None:
    """Write the three files into the working directory."""
    draw = random.Random(0)
    people = [f"{first} {last}" for first in FIRST for last in LAST]
    draw.shuffle(people)
    known = {person: rows(person, draw) for person in people}
    taught = people[:n_people]
    for name, chosen in ("data", taught), ("forget", taught[:n_forgotten]), ("holdout", people[-10:]):
        with Path(f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([COLUMNS, *(row for person in chosen for row in known[person])])


if __name__ == "__main__":
    write(*map(int, sys.argv[1:]))
