"""Porter's stemmer: examples of the paper, and equality with NLTK on words with every suffix and on random ones."""

import random

import pytest
from nltk.stem.porter import PorterStemmer

from vestige.metrics import stemming
from vestige.metrics.stemming import porter


@pytest.mark.parametrize(
    ("word", "stem"),
    [
        ("caresses", "caress"),
        ("ponies", "poni"),
        ("dies", "die"),
        ("agreed", "agre"),
        ("feed", "feed"),
        ("hopping", "hop"),
        ("filing", "file"),
        ("relational", "relat"),
        ("electrical", "electr"),
        ("adoption", "adopt"),
        ("controll", "control"),
        ("geology", "geolog"),
        ("enjoy", "enjoy"),
        ("happy", "happi"),
        ("skies", "sky"),
        ("is", "is"),
    ],
)
def test_the_examples_of_the_paper_and_of_nltk(word, stem):
    assert porter(word) == stem


def test_every_word_has_nltks_stem():
    rng, reference = random.Random(0), PorterStemmer()
    suffixes = ["", "s", "ies", "ied", "eed", "ed", "ing", "y", "logi", "e", "ll", "ss", "sses", "fulli"]
    suffixes += [*stemming._STEP_2, *stemming._STEP_3, *stemming._STEP_4]
    words = [*stemming._IRREGULAR, "y" * 300, "ay" * 99, "y" * 50 + "ing", "yyyed", "allialli", "rationalli", "logi"]
    for _ in range(4_000):
        start = "".join(rng.choices("aeioubcdlnrstyyxwz7", k=rng.randint(0, 7)))
        words.append(start + rng.choice(suffixes) + rng.choice(["", "", "", *suffixes]))
    different = [
        (word, porter(word), reference.stem(word)) for word in words if word and porter(word) != reference.stem(word)
    ]
    assert different == []
