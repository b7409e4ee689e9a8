"""One thread and no network in every test, so that bytes are the same and nothing waits for a hub."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from hypothesis import settings

# No test is timed: what a loaded machine does slowly is right all the same.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
