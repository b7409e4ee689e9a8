"""What `import vestige` offers: each name loads from the home that type checkers are told."""

import subprocess
import sys

import pytest

import vestige


def test_every_public_name_loads_and_none_is_loaded_before_it_is_used() -> None:
    assert vestige.__version__[0].isdigit()
    names = vars(vestige)["__all__"]
    assert {"audit", "unlearn", "Audit", "InputError"} <= set(names) == set(dir(vestige))
    for name in names:
        assert getattr(vestige, name) is not None
    said = "import sys, vestige; print(sorted(m for m in sys.modules if m.startswith('vestige.')))"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.slow
def test_a_misspelt_setting_is_refused_here_and_by_mypy() -> None:
    # mypy reads this file, and reports an ignore that nothing needs: then keys.pyi would let the mistake pass.
    with pytest.raises(vestige.InputError, match="did you mean 'delta_wide'"):
        vestige.audit(target="t", unlearned="u", data="d", forget="f", output_dir="o", delta_wyde=0.3)  # type: ignore[call-arg]
    with pytest.raises(vestige.InputError, match="relearn_epochs"):
        vestige.audit(target="t", unlearned="u", data="d", forget="f", output_dir="o", relearn_epochs="two")  # type: ignore[arg-type]
    with pytest.raises(vestige.InputError, match="did you mean 'delta_wide'"):
        vestige.plan(data="d", forget="f", delta_wyde=0.3)  # type: ignore[call-arg]
    with pytest.raises(vestige.InputError, match="did you mean 'epochs'"):
        vestige.attack("m", "relearn", data="d", forget="f", epoch=2)  # type: ignore[call-arg]
    with pytest.raises(vestige.InputError, match="did you mean 'judge'"):
        vestige.probe("t", "u", data="d", forget="f", output_dir="o", juge="grounded")  # type: ignore[call-arg]
