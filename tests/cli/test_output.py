"""What --fresh does to an output folder when the command succeeds, is refused, or is killed."""

import contextlib
import os

import pytest
from tests.small import in_a_child, squares, vestige, written

from vestige.api.output import output_in
from vestige.artifacts.layout import SubjectFolder
from vestige.core.errors import InputError
from vestige.core.files import locked


def work(folder, text, *, fresh=False, fail=None, trained=False):
    """A command that writes a spec, may train, and may be refused."""
    with output_in(folder, fresh=fresh, made_by=("spec.json",)):
        subject = SubjectFolder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        subject.spec.write_text(text)
        if trained:
            subject.training_log.parent.mkdir(exist_ok=True)
            subject.training_log.write_text("{}\n")
        if fail is not None:
            raise fail


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_what_fresh_replaces_goes_only_when_the_new_is_done(tmp_path):
    out = tmp_path / "out"
    work(out, "old")
    with output_in(out, fresh=True, made_by=("spec.json",)):
        assert names(out) == [".before-fresh", ".lock"]
        assert (out / ".before-fresh/spec.json").read_text() == "old"
        (out / "spec.json").write_text("new")
    assert names(tmp_path) == ["out"]
    assert names(out) == [".lock", "spec.json"]
    assert (out / "spec.json").read_text() == "new"


def test_a_users_own_files_stay_where_they_are(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    for text in ("old", "new"):
        work(out, text, fresh=True, trained=True)
        assert ((out / "spec.json").read_text(), (out / "thesis.txt").read_text()) == (text, "mine")
    with pytest.raises(InputError, match="no"):
        work(out, "newer", fresh=True, fail=InputError("no"))
    assert names(out) == [".lock", "spec.json", "thesis.txt", "train"]
    # In a folder of Vestige's a file of another name is not told apart from the rest when all goes at once.
    (out / "train/notes.txt").write_text("mine too")
    with pytest.raises(InputError, match=r"train/notes\.txt is not a file that Vestige wrote"):
        work(out, "newer", fresh=True)
    assert names(out) == [".lock", "spec.json", "thesis.txt", "train"]


@pytest.mark.parametrize("fresh", [False, True])
def test_a_folder_in_which_others_files_stand_where_ours_would_go_is_refused(tmp_path, fresh):
    out = tmp_path / "out"
    (out / "model").mkdir(parents=True)
    (out / "model/config.json").write_text("mine")
    with pytest.raises(InputError, match="holds model and nothing of this command's"):
        work(out, "new", fresh=fresh)
    assert (out / "model/config.json").read_text() == "mine"


@pytest.mark.parametrize("error", [InputError("no"), ValueError("a fault")])
def test_a_command_that_fails_before_it_trains_puts_the_old_back(tmp_path, error):
    out = tmp_path / "out"
    work(out, "old")
    with pytest.raises(type(error)):
        work(out, "new", fresh=True, fail=error)
    assert names(tmp_path) == ["out"]
    assert (out / "spec.json").read_text() == "old"


def test_what_was_trained_before_the_failure_stays_and_so_does_the_old(tmp_path):
    out = tmp_path / "out"
    work(out, "old")
    with pytest.raises(InputError):
        work(out, "broke down", fresh=True, fail=InputError("not finite"), trained=True)
    assert (out / "spec.json").read_text() == "broke down"
    assert (out / ".before-fresh/spec.json").read_text() == "old"
    work(out, "newest", fresh=True)
    assert names(out) == [".lock", "spec.json"]
    assert (out / "spec.json").read_text() == "newest"


def test_a_refused_command_leaves_an_empty_folder_empty_and_an_absent_one_absent(tmp_path):
    for out in (tmp_path / "empty", tmp_path / "absent"):
        if out.name == "empty":
            out.mkdir()
        with pytest.raises(InputError):
            work(out, "new", fail=InputError("no"))
    assert names(tmp_path) == ["empty"]
    assert names(tmp_path / "empty") == []


def test_a_refused_command_without_fresh_touches_nothing_that_stood_there(tmp_path):
    out = tmp_path / "out"
    work(out, "old")
    with pytest.raises(InputError), output_in(out, fresh=False, made_by=("spec.json",)):
        raise InputError("another subject")
    assert (out / "spec.json").read_text() == "old"


def test_fresh_killed_at_every_rename_loses_nothing(tmp_path):
    kills = 0
    for place in range(1, 19):
        folder = tmp_path / str(place)
        out = folder / "out"
        folder.mkdir()
        work(out, "old", trained=True)
        code = in_a_child(lambda out=out, place=place: _work_and_die(out, place))
        # Without --fresh the same command finds the old or the new, whole.
        with output_in(out, fresh=False, made_by=("spec.json",)):
            assert (out / "spec.json").read_text() in ("old", "new")
            assert (out / "train/metrics.jsonl").read_text() == "{}\n"
        assert [n for n in names(out) if not n.endswith(".partial")] == [".lock", "spec.json", "train"]
        kills += code == 137
        if code == 0:
            break
    # Of the two entries that move aside, of the note, and of what is aside before it is deleted: before and after each.
    assert kills == 8


def _work_and_die(out, place):
    replace, seen = os.replace, []

    def dying(source, target):
        for act in (lambda: None, lambda: replace(source, target)):
            act()
            seen.append(source)
            if len(seen) == place:
                os._exit(137)

    os.replace = dying
    work(out, "new", fresh=True, trained=True)


def test_links_and_the_folder_one_is_in_are_started_over_and_a_busy_one_is_refused(tmp_path, monkeypatch):
    real, link = tmp_path / "real", tmp_path / "link"
    work(real, "old")
    link.symlink_to(real)
    work(link, "new", fresh=True)
    monkeypatch.chdir(real)
    work(real, "newer", fresh=True)
    with locked(real / ".lock", patience_seconds=0), pytest.raises(InputError, match="another command is running"):
        work(real, "newest", fresh=True)
    assert (real / "spec.json").read_text() == "newer"


def test_a_command_that_came_first_keeps_the_folder(tmp_path):
    out = tmp_path / "out"
    with contextlib.ExitStack() as other:
        with pytest.raises(InputError, match="busy"):
            _refused_while_another_works(out, other)
        assert (out / "spec.json").read_text() == "theirs"


def _refused_while_another_works(out, other):
    with output_in(out, fresh=False, made_by=("spec.json",)):
        other.enter_context(locked(out / ".lock", patience_seconds=0))
        (out / "spec.json").write_text("theirs")
        raise InputError("busy")


ITEMS = squares(8)
REFUSED = {
    "an adapter that is not trained": (["--save", "adapter", "--set", "lora_rank=0"], "lora_rank 0"),
    "layers that are not there": (["--set", "lora_rank=2", "--set", 'lora_targets=["nosuch"]'], "nosuch"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Data, a forget set, a target, and what an unlearning made of it."""
    folder = tmp_path_factory.mktemp("fresh")
    data = written(folder / "qa.jsonl", ITEMS)
    written(folder / "forget.jsonl", ITEMS[:2])
    once = ["--set", "epochs=1", "--set", "batch_size=8"]
    vestige("finetune", "builtin:tiny", "--data", data, "--output-dir", folder / "target", *once)
    vestige(*unlearn(folder), "--output-dir", folder / "out")
    return folder


def unlearn(folder):
    words = ["unlearn", folder / "target", "--method", "ga", "--data", folder / "qa.jsonl", "--set", "epochs=1"]
    return [*words, "--forget", folder / "forget.jsonl"]


@pytest.mark.slow
@pytest.mark.parametrize(("words", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused_deletes_nothing_and_claims_nothing(made, tmp_path, words, said):
    before = {p: p.stat().st_mtime_ns for p in (made / "out").rglob("*") if p.is_file() and p.name != ".lock"}
    with pytest.raises(InputError, match=said):
        vestige(*unlearn(made), *words, "--output-dir", made / "out", "--fresh")
    assert {p: p.stat().st_mtime_ns for p in (made / "out").rglob("*") if p.is_file() and p.name != ".lock"} == before
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match=said):
        vestige(*unlearn(made), *words, "--output-dir", empty)
    assert not any(empty.iterdir())


def test_the_built_in_model_is_made_in_float32_only(made, tmp_path):
    words = ["finetune", "builtin:tiny", "--data", made / "qa.jsonl", "--dtype", "bfloat16"]
    with pytest.raises(InputError, match="builtin:tiny is made in float32 and not in bfloat16"):
        vestige(*words, "--output-dir", tmp_path / "out")
    assert not (tmp_path / "out").exists()
