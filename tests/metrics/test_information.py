import math

import numpy as np
import pytest

from vestige.metrics import information as info


@pytest.mark.parametrize(("vocabulary", "bits"), [(1, 0.0), (32000, 1496.58), (50257, 1561.7), (128256, 1696.9)])
def test_a_hundred_tokens_carry_about_1500_bits(vocabulary, bits):
    assert info.text_capacity(100, vocabulary) == pytest.approx(bits, abs=0.05)


def test_the_papers_prefix_by_hand():
    # log2 32000 = 14.9658: 96 tokens reach 1430 bits and 95 do not; 171 reach 2546; 1496.58 / 1430 = 1.0466.
    assert info.text_capacity(95, 32000) < 1430 <= info.text_capacity(96, 32000)
    assert info.text_capacity(170, 32000) < 2546 <= info.text_capacity(171, 32000)
    assert info.prompt_data_entropy_ratio(info.text_capacity(100, 32000), 1430.0) == pytest.approx(1.0466, abs=1e-4)


def test_two_bits_for_each_wrong_answer():
    # 715 wrong of 1273 make 1430. At the stated accuracy of 39.9 % 765 are wrong, which makes 1530.
    assert info.need_wrong_answers(715, 4) == 1430
    assert info.need_wrong_answers(765, 4) == 1530


def test_rate_distortion_reaches_1430_at_84_3_per_cent():
    assert info.need_rate_distortion(1273, 0.843, 4) == pytest.approx(1430, abs=3)
    assert info.need_rate_distortion(1273, 1.0, 4) == pytest.approx(2546)
    assert info.need_rate_distortion(1273, 0.25, 4) == info.need_rate_distortion(1273, 0.1, 4) == 0
    assert info.need_rate_distortion(100, 0.2501, 4) == pytest.approx(0, abs=1e-3)


def test_the_code_length_that_makes_1430_bits():
    # A geometric mean of 0.459 a question, 0.779 nats.
    assert info.code_length(np.full(1273, math.log(0.459))) == pytest.approx(1430, abs=1)
    assert info.code_length(np.log([0.5, 0.25])) == pytest.approx(3)


def test_a_prequential_code_adds_its_blocks():
    # The first block under the untouched model, 1 + 1 bits. The second under the tuned one, 0.5 bits in all.
    blocks = [np.log([0.5, 0.5]), np.array([-0.5 * math.log(2)])]
    assert info.prequential(blocks) == pytest.approx(2.5)
    with pytest.raises(ValueError, match="nothing was shown"):
        info.prequential([])


def test_the_capacity_is_the_least_bound_and_says_which():
    found = info.capacity({"text": 300.0, "code length": 120.5, "seen by the search": 800.0})
    assert found == (120.5, "code length")


def test_the_need_of_a_gain_is_what_the_answers_became_likelier():
    before, after = np.log([0.25, 0.5]), np.log([0.5, 0.5])
    assert info.need_of_gain(before, after) == pytest.approx(1)
    assert info.need_of_gain(after, before) == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: info.text_capacity(-1, 100),
        lambda: info.need_wrong_answers(3, 1),
        lambda: info.need_rate_distortion(3, 1.5, 4),
        lambda: info.code_length(np.array([0.5])),
        lambda: info.code_length(np.array([-math.inf])),
        lambda: info.prompt_data_entropy_ratio(100.0, 0.0),
        lambda: info.capacity({}),
    ],
)
def test_what_is_not_a_number_of_bits_is_refused(call):
    with pytest.raises(ValueError):
        call()
