"""What `import vestige` offers: each name loads from the home that type checkers are told."""

import subprocess
import sys

import vestige


def test_every_public_name_loads_and_none_is_loaded_before_it_is_used():
    assert vestige.__version__[0].isdigit()
    assert {"audit", "unlearn", "Audit", "InputError"} <= set(vestige.__all__) == set(dir(vestige))
    for name in vestige.__all__:
        assert getattr(vestige, name) is not None
    said = "import sys, vestige; print(sorted(m for m in sys.modules if m.startswith('vestige.')))"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
