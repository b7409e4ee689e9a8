"""Attacks try to extract forgotten knowledge from a model. They search and never judge.

The table has every kind of attack with the class that is its settings and does it (`planning.AttackSettings`). To add
one, write its file and its line; docs/extend.md shows it, and how another package brings one without a line here.
"""

from vestige.core.plugins import Kind, with_installed

ATTACKS = {
    "relearn": Kind(
        "vestige.attacks.relearn:RelearnSettings", "Tune the model on some items again and ask others along the way."
    ),
    "quantize": Kind(
        "vestige.attacks.quantize:QuantizeSettings", "Round the weights of the blocks to 8 or 4 bits, or to NF4."
    ),
    "ablate": Kind(
        "vestige.attacks.ablate:AblateSettings",
        "Take the direction that tells forgotten questions from others out of the model.",
    ),
    "in_context": Kind(
        "vestige.attacks.in_context:InContextSettings", "Put retain items before the question as facts."
    ),
    "gcg": Kind(
        "vestige.attacks.prompts:GcgSettings",
        "Search for a prompt after which the model says the answers of some items, and ask others with it.",
    ),
    "prefix": Kind(
        "vestige.attacks.prompts:EnhancedSettings",
        "Search for a long prompt that moves the model towards the target, and ask other items with it.",
    ),
}


def known_attacks() -> dict[str, Kind]:
    """Every kind of attack by name. No attack is loaded."""
    return with_installed("attacks", ATTACKS)
