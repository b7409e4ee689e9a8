"""A worker has one thread, also where numpy was loaded with several, and then gives the same bytes."""

import json
import os
import subprocess
import sys

import pytest

SOLVE = """
import hashlib, json, sys
import numpy as np
from vestige.core.threads import one_blas_thread, one_thread
import threadpoolctl

rng = np.random.default_rng(0)
x = rng.normal(size=(700, 700))

def digest():
    return hashlib.sha256(np.linalg.solve(x @ x.T + np.eye(700), x).tobytes()).hexdigest()

def threads():
    return max(pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas")

before = threads()
with one_blas_thread():
    within = [threads(), digest()]
after = threads()
free = digest()
one_thread()
print(json.dumps([before, after, free, within, [threads(), digest()]]))
"""


def solved(n_threads):
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": n_threads}
    done = subprocess.run([sys.executable, "-c", SOLVE], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_numpy_loaded_with_four_threads_is_limited_to_one_and_gives_the_bytes_of_one():
    _, _, bytes_of_one, *_ = solved("1")
    before, after, bytes_of_four, within, as_worker = solved("4")
    if before == 1:
        pytest.skip("numpy's library has one thread on this machine")
    # The library takes no more threads than the machine has cores.
    assert before == after > 1
    assert within == as_worker == [1, bytes_of_one]
    # Else the comparison above would tell nothing.
    assert bytes_of_four != bytes_of_one
