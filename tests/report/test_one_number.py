"""A finished page says each number once, or the same wherever it appears."""

import html
import json
import re
from collections import defaultdict
from dataclasses import replace
from urllib.parse import unquote

import pytest
from reading import Elements, words
from synthetic_audit import FACTS, estimate, outcome, with_control, with_reference, write_audit
from synthetic_run import write_run

from vestige.artifacts.layout import RunFolder
from vestige.report.contents import read_contents
from vestige.report.page import render
from vestige.report.words import attack_name, format_name, method_name

pytestmark = pytest.mark.slow


def percentage(text):
    """The first percentage of a text, as a whole number."""
    found = re.search(r"(−?)(\d+)[\s\u202f]*%", text)
    return None if found is None else int(f"{found[1].replace('−', '-')}{found[2]}")


def share(text):
    """The first share of a text, such as `−0.19 [−0.28, −0.10]`, in per cent."""
    found = re.search(r"(−?)(\d+\.\d\d)", text)
    return round(100 * float(f"{found[1].replace('−', '-')}{found[2]}"))


def rows_of(page):
    """The rows of models on the first screen by model."""
    table = page[page.index('<table class="verdicts">') :]
    rows = {}
    for row in re.findall(
        r"<tr class=\"(?:method|role)-\w+\">.*?</tr>", table[: table.index("</table>")], flags=re.DOTALL
    ):
        rows[words(re.search(r"</span><bdi>(.*?)</bdi>", row)[1])] = row
    return rows


def numbers_of(page):
    """Each amount of the page: (model, form or attack and form, quantity), the amount in per cent, the part."""
    for model, row in rows_of(page).items():
        for told, words_of_mark in re.findall(r'<span class="\w+" data-tell="([^"]*)" tabindex="0">(.*?)</span>', row):
            _, lines = json.loads(html.unescape(told))
            place = dict(map(tuple, lines))["in"]
            yield (model, place, "left"), percentage(words_of_mark), "picture"
            yield (model, place, "left"), share(lines[0][1]), "tooltip"
        for href, cell in re.findall(r'href="#(why-[\d-]+)".*?</a>(.*?)</td>', row, flags=re.DOTALL):
            said = [words(part) for part in re.findall(r'<span class="most">(.*?)</span>', cell, flags=re.DOTALL)]
            amount = next((part for part in said if re.match(r"[^(]*%", part)), "")
            if amount:
                place = said[said.index(amount) + 1]
                yield (model, place, href), abs(percentage(amount)), "cell"
                reasons = page[page.index(f'id="{href}"') :]
                reasons = reasons[: reasons.index("</table>")]
                plain = words(re.search(r'<p class="reason">(.*?)</p>', reasons, flags=re.DOTALL)[1])
                yield (model, place, href), abs(percentage(plain)), "reason"
                for name, value in re.findall(r'<th scope="row"><bdi>(.*?)</bdi></th><td><b>(.*?)</b>', reasons):
                    if html.unescape(name) == place:
                        yield (model, place, href), abs(percentage(value)), "table of the reason"
    data = json.loads(Elements(page).contents("script")[0])["audits"][0]
    for subject, attack, form, quantity, value, *_, unit in data["cells"]:
        names = [data["words"][place] for place in (subject, attack, form, quantity)]
        if names[3] == "left" and unit != "bits":
            yield (*places(*names[:3]), "left"), round(100 * value), "all numbers"
    for key, told, value in re.findall(r'href="#cell=([^"]*)" data-tell="([^"]*)">([^<]*)<', page):
        _, subject, attack, form, quantity = unquote(key).split("|")
        yield (*places(subject, attack, form), quantity), percentage(f"{value} %"), "heat map"
        yield (*places(subject, attack, form), quantity), share(html.unescape(told)), "tooltip of the heat map"


def places(subject, attack, form):
    """A model and its form of question as the page calls them."""
    return method_name(subject), f"{attack_name(attack)}, {format_name(form)}" if attack else format_name(form)


def contradictions(page):
    """The amounts that differ between two parts of the page, and how often each pair of parts was compared."""
    found = defaultdict(dict)
    for name, value, part in numbers_of(page):
        found[name].setdefault(part, value)
        assert found[name][part] == value, (name, part)
    differ = {name: parts for name, parts in found.items() if len({*parts.values()}) > 1}
    return differ, [tuple(sorted(parts)) for parts in found.values() if len(parts) > 1]


def page_of(tmp_path, found):
    run = write_run(tmp_path / "demo", hostile=False, forgets=("edge:A_B",))
    write_audit(run, found)
    return render(read_contents(RunFolder(run)))


def test_numbers_that_appear_twice_on_the_page_are_equal(tmp_path):
    found = with_control(with_reference(replace(outcome(), facts=FACTS)))
    # Less left than in a control: the cell, the reason, the picture and the heat map give the same negative number.
    below = [
        replace(
            v,
            evidence={**v.evidence, v.decides: estimate("leakage", -0.16, 0.1, "leakage")},
            outcome="holds",
            at_least=-0.26,
            at_most=-0.06,
        )
        if (v.subject, v.claim) == ("idk_gd", "not expressed")
        else v
        for v in found.verdicts
    ]
    low = [
        replace(c, leakage=estimate("leakage", -0.16, 0.1, "leakage"))
        if (c.subject, c.format) == ("idk_gd", "option_text_mean")
        else c
        for c in found.matrix
    ]
    page = page_of(tmp_path, replace(found, verdicts=tuple(below), matrix=tuple(low)))
    differ, compared = contradictions(page)
    assert differ == {}
    # The comparison reaches each part of the page.
    assert {part for parts in compared for part in parts} == {
        *("picture", "tooltip", "cell", "reason", "table of the reason"),
        *("all numbers", "heat map", "tooltip of the heat map"),
    }
    assert len(compared) > 60
    assert "−16 % left, less than a control (at most 0 %)" in words(page).replace("\N{NARROW NO-BREAK SPACE}", " ")
    facts = re.search(r"GA: states (\d+) of (\d+) facts that no control states; finds (\d+) more", words(page))
    assert f"states {facts[1]} fact that no control states and finds {facts[3]} fact likelier" in words(page)
    assert f"{facts[2]} facts that nothing else gives away" in words(page)


def test_a_changed_number_is_found(tmp_path):
    page = page_of(tmp_path, outcome())
    assert contradictions(page)[0] == {}
    changed = re.sub(r'(data-tell="[^"]*" tabindex="0">)19(?=[\s\u202f]*% asked to choose)', r"\g<1>18", page, count=1)
    assert changed != page
    with pytest.raises(AssertionError):
        assert contradictions(changed)[0] == {}
