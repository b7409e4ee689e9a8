"""Names and addresses by number: number n of a seed always has the same name, and no two numbers share one.

Numbers go through a keyed permutation of the name space, so a million unique names need no list of those
given. Forms and alphabets are PISTOL's (Qiu et al., 2024, arXiv:2406.16810): "Empblq LLC", "Jkeq Cyfz", "442
Rcvvyy Boulevard". Uniqueness is ours: no two companies share the six letters, whatever follows them, no two
persons a full name, no two addresses a street.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from string import ascii_lowercase

import numpy as np
from jaxtyping import Int, UInt64

from vestige.core.errors import InputError
from vestige.core.seeds import generator, random_words, scaled

SUFFIXES = (
    "Ltd",
    "Inc",
    "Corp",
    "LLC",
    "PLC",
    "GmbH",
    "AG",
    "SA",
    "SARL",
    "SRL",
    "BV",
    "BVBA",
    "NV",
    "SE",
    "SAS",
)
STREETS = (
    "Street",
    "Avenue",
    "Boulevard",
    "Lane",
    "Road",
    "Drive",
    "Court",
    "Place",
    "Square",
    "Way",
    "Terrace",
    "Trail",
    "Parkway",
    "Circle",
    "Crescent",
)

_ROUNDS = 4
_PAIRS = np.array(["".join(p) for p in product(ascii_lowercase, repeat=2)], dtype=object)
_CAPITAL_PAIRS = np.array([p.capitalize() for p in _PAIRS], dtype=object)
_NUMBERS = np.array([f"{n:03d}" for n in range(1000)], dtype=object)


@lru_cache(maxsize=1)
def _triples() -> tuple[np.ndarray, np.ndarray]:
    triples = ["".join(t) for t in product(ascii_lowercase, repeat=3)]
    return np.array([t.capitalize() for t in triples], dtype=object), np.array(triples, dtype=object)


@dataclass(frozen=True, eq=False)
class Permutation:
    """A keyed permutation of half**2 numbers: a balanced Feistel network over tables of random words.

    Four rounds of random functions make a pseudo-random permutation (Luby and Rackoff, 1988); unlike an
    affine map, neighbouring numbers do not get names that differ by the same letters throughout. Row r < 4 of
    `words` is the function of round r; the last two rows give further words that belong to a number.
    """

    half: int
    words: UInt64[np.ndarray, "rows half"]

    @classmethod
    def keyed(cls, seed: int, purpose: str, half: int) -> "Permutation":
        """The permutation of one seed and purpose."""
        words = random_words(generator(seed, "permutation", purpose), (_ROUNDS + 2) * half)
        return cls(half, words.reshape(_ROUNDS + 2, half))

    @cached_property
    def _shifts(self) -> Int[np.ndarray, "rounds half"]:
        return scaled(self.words[:_ROUNDS].reshape(-1), 0, self.half - 1).reshape(_ROUNDS, self.half)

    def halves(self, numbers: Int[np.ndarray, " n"]) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
        """The halves, each in [0, half), of the permuted numbers. Numbers beyond the space are refused."""
        if len(numbers) and int(numbers.max()) >= self.half**2:
            raise InputError(f"the graph needs more than {self.half**2:,} names of one kind; compile a smaller one")
        left, right = np.divmod(numbers, self.half)
        for shift in self._shifts:
            left, right = right, (left + shift[right]) % self.half
        return left, right

    def extra(self, left: Int[np.ndarray, " n"], right: Int[np.ndarray, " n"], limit: int) -> Int[np.ndarray, " n"]:
        """A further number in [0, limit) that belongs to the permuted number."""
        return scaled(self.words[-2][left] ^ self.words[-1][right], 0, limit - 1)


@dataclass(frozen=True)
class Names:
    """The names and addresses of one seed."""

    seed: int

    @cached_property
    def _company_space(self) -> Permutation:
        return Permutation.keyed(self.seed, "company", 26**3)

    @cached_property
    def _person_space(self) -> Permutation:
        return Permutation.keyed(self.seed, "person", 26**4)

    @cached_property
    def _address_space(self) -> Permutation:
        return Permutation.keyed(self.seed, "address", 26**3)

    def companies(self, numbers: Int[np.ndarray, " n"]) -> list[str]:
        """Six letters and a suffix, as in "Empblq LLC"; the letters are unique."""
        capital, plain = _triples()
        left, right = self._company_space.halves(numbers)
        suffixes = np.array(SUFFIXES, dtype=object)[self._company_space.extra(left, right, len(SUFFIXES))]
        return [f"{a}{b} {c}" for a, b, c in zip(capital[left], plain[right], suffixes, strict=True)]

    def persons(self, numbers: Int[np.ndarray, " n"]) -> list[str]:
        """Four letters and four letters, as in "Jkeq Cyfz"; the whole is unique."""
        left, right = self._person_space.halves(numbers)
        parts = (
            _CAPITAL_PAIRS[left // 676],
            _PAIRS[left % 676],
            _CAPITAL_PAIRS[right // 676],
            _PAIRS[right % 676],
        )
        return [f"{a}{b} {c}{d}" for a, b, c, d in zip(*parts, strict=True)]

    def addresses(self, numbers: Int[np.ndarray, " n"]) -> list[str]:
        """Three digits, six letters and a kind of street, as in "094 Rcvvyy Way"; the letters are unique."""
        capital, plain = _triples()
        left, right = self._address_space.halves(numbers)
        extra = self._address_space.extra(left, right, 1000 * len(STREETS))
        kinds = np.array(STREETS, dtype=object)[extra // 1000]
        parts = (_NUMBERS[extra % 1000], capital[left], plain[right], kinds)
        return [f"{a} {b}{c} {d}" for a, b, c, d in zip(*parts, strict=True)]

    def size(self, kind: str) -> int:
        """How many names or addresses of a kind there are."""
        spaces = {"company": self._company_space, "person": self._person_space, "address": self._address_space}
        return spaces[kind].half ** 2

    def of_kind(self, kind: str, numbers: Int[np.ndarray, " n"]) -> list[str]:
        """Names of companies, names of persons, or addresses."""
        return {"company": self.companies, "person": self.persons, "address": self.addresses}[kind](numbers)


def day_number(year: int, month: int, day: int) -> int:
    """The day as days since 1970-01-01, negative before it."""
    return int(np.datetime64(f"{year:04d}-{month:02d}-{day:02d}", "D").astype(np.int64))


def day_texts(days: Int[np.ndarray, " n"]) -> list[str]:
    """Days since 1970-01-01 as dd-mm-yyyy."""
    if not len(days):
        return []
    first = int(days.min())
    texts: list[str] = _calendar(first // 4096, int(days.max()) // 4096)[days - first // 4096 * 4096].tolist()
    return texts


@lru_cache(maxsize=8)
def _calendar(first_block: int, last_block: int) -> np.ndarray:
    days = np.arange(first_block * 4096, (last_block + 1) * 4096).astype("datetime64[D]")
    return np.array([f"{t[8:]}-{t[5:7]}-{t[:4]}" for t in np.datetime_as_string(days).tolist()], dtype=object)
