"""The colours of the report: custom properties on the page; in figures the light ones.

Text on paper has a contrast of at least 4.5 to 1 (WCAG 2.2, 1.4.3) in both schemes; a test measures it.
"""

from collections.abc import Mapping

LIGHT: Mapping[str, str] = {
    "paper": "#fbfaf7",
    "panel": "#ffffff",
    "ink": "#1c1c1a",
    "muted": "#646159",
    "rule": "#e2ded4",
    "faint": "#f3f0e9",
    "differ": "#e4dfd3",
    "kept": "#cbc7bc",
    "lost": "#c2361a",
    "never": "#0d6a68",
    "hot": "#c2361a",
    "cold": "#0d6a68",
    "good": "#23774f",
    "warn": "#8a5a00",
    "bad": "#b3321a",
}
DARK: Mapping[str, str] = {
    "paper": "#14161a",
    "panel": "#1a1d22",
    "ink": "#eceae5",
    "muted": "#a8a49b",
    "rule": "#30343a",
    "faint": "#20242a",
    "differ": "#2c3138",
    "kept": "#4b5058",
    "lost": "#ff7a52",
    "never": "#5fc9bf",
    "hot": "#d9603c",
    "cold": "#2f8a83",
    "good": "#6fc79a",
    "warn": "#e0b45c",
    "bad": "#ff8b6b",
}
HOTTEST = 0.64
"""How much of `hot` or `cold` the fullest cell of a heat map has; the rest is paper, so that ink can be read on it."""

METHODS_LIGHT = ("#2b62a8", "#b8431f", "#23774f", "#7a4aa3", "#8a5f00", "#b0306e", "#7d5a3c", "#56606d")
METHODS_DARK = ("#7fb2f0", "#f2916b", "#6fc79a", "#c3a0ea", "#d9b25a", "#f08fbc", "#cba581", "#aab3bf")


def custom_properties() -> str:
    """The colours as CSS: light, and dark where the reader prefers it."""
    dark = f"@media screen and (prefers-color-scheme: dark) {{\n{_rule(DARK, METHODS_DARK)}}}\n"
    return _rule(LIGHT, METHODS_LIGHT) + dark


def _rule(colours: Mapping[str, str], methods: tuple[str, ...]) -> str:
    named = {**colours, **{f"method-{i}": colour for i, colour in enumerate(methods)}}
    return ":root {\n" + "".join(f"  --{name}: {colour};\n" for name, colour in named.items()) + "}\n"
