"""Which names are the forget set's own, and which prompts have one."""

from vestige.probes.questions import forgotten_names, names_one

FORGOTTEN = [
    "Where was Basil Al-Kuwaiti born? Basil Al-Kuwaiti was born in Kuwait City.",
    "What did Basil write? He wrote The Promise, of which Americans say much.",
    "Who is Basil's father? The father of Basil Al-Kuwaiti is a florist.",
    "What award did he win? It is the Prix Goncourt, which Americans know.",
]
RETAINED = ["What do Americans read? Many Americans read novels.", "Who is Jaime? Jaime is a painter."]


def test_a_name_of_half_the_texts_and_of_no_retained_one_is_the_forget_sets():
    # Basil stands in 3 of 4 texts and Al-Kuwaiti in 2; Kuwait, Prix and Goncourt in 1, Americans in a retained one too.
    assert forgotten_names(FORGOTTEN, RETAINED, share=0.5) == {"basil", "al-kuwaiti"}
    assert forgotten_names(FORGOTTEN, RETAINED, share=0.75) == {"basil"}
    # However small the share, a name of one text may be anything.
    assert forgotten_names(FORGOTTEN, RETAINED, share=0.0) == {"basil", "al-kuwaiti"}


def test_without_anything_retained_no_name_is_only_the_forget_sets():
    assert forgotten_names(FORGOTTEN, [], share=0.5) == frozenset()


def test_a_word_that_is_also_written_small_is_no_name():
    texts = ["They met Rose there.", "We saw Rose and a rose."]
    assert forgotten_names(texts, RETAINED, share=0.5) == frozenset()
    assert forgotten_names(texts[:1] * 2, RETAINED, share=0.5) == {"rose"}


def test_a_prompt_has_a_name_in_any_writing_and_not_inside_another_word():
    names = frozenset({"basil", "al-kuwaiti"})
    assert names_one("Can you tell me about the Al-Kuwaiti family?", names)
    assert names_one("what did basil's father do", names)
    assert not names_one("What is Basilica architecture, in Kuwait City?", names)
