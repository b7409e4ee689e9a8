"""What can be set of the checks of a data set."""

from pydantic import Field, PositiveInt

from vestige.core.settings import Settings
from vestige.data.mcq import MOST_OPTIONS, Drawing

LEAST_ITEMS = 5
"""With fewer forget items no number of options lets chance be told from a leak."""
LEAST_TAUGHT = 20
"""Retain items with options below which nothing is learned from them."""


class SoundnessSettings(Settings):
    """Thresholds of the checks; all of them stand in the result.

    A tested check fails where its p-value, after Holm's correction for all that were made, is below `alpha`, unless the
    whole interval of its effect is below `margin`; it passes where that is so; else it cannot tell. Effects are shares
    of the pick above chance. `near` is the weighted Jaccard index from which two texts are near-duplicates, `held` the
    share of a forget question's weight from which a retain question contains it. `options` are drawn where the data
    gives none. `most_taught` retain items at most teach the guessers (drawn by the seed).
    """

    alpha: float = Field(default=0.05, gt=0, lt=1)
    margin: float = Field(default=0.1, gt=0, lt=1)
    permutations: int = Field(default=4_000, ge=2_000)
    near: float = Field(default=0.8, gt=0, le=1)
    held: float = Field(default=0.9, gt=0, le=1)
    options: int = Field(default=4, ge=2, le=MOST_OPTIONS)
    most_taught: PositiveInt = 2_000

    def drawing(self, seed: int) -> Drawing:
        """How options are drawn; those that the data gives keep their places, which are checked too."""
        return Drawing(self.options, too_few="leave_out", place="given", seed=seed)
