"""Advice of a library that does not fit what Vestige does is not shown to people; everything else is."""

import logging

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils.logging import warning_once

from vestige.cli.app import _but_of_masks


class Shown(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def test_the_advice_to_pass_a_mask_is_all_that_is_left_out():
    config = AutoConfig.for_model("gpt2", vocab_size=20, n_positions=16, n_embd=8, n_layer=1, n_head=2, pad_token_id=0)
    model = AutoModelForCausalLM.from_config(config)
    log, shown = logging.getLogger("transformers.modeling_utils"), Shown()
    log.addHandler(shown)
    try:
        for filtered in (False, True):
            if filtered:
                log.addFilter(_but_of_masks)
            warning_once.cache_clear()
            model(input_ids=torch.tensor([[3, 4, 0]]))
            log.warning("something else")
    finally:
        log.removeFilter(_but_of_masks)
        log.removeHandler(shown)
    advice, *others = shown.lines
    assert advice.startswith("We strongly recommend passing in an `attention_mask`")
    assert others == ["something else", "something else"]
