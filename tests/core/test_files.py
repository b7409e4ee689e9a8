import errno
import os
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.core import files
from vestige.core.errors import InputError, MachineError
from vestige.core.settings import read_toml


class Crash(BaseException):
    pass


def crash(*_args, **_kwargs):
    raise Crash


def test_a_crash_before_the_rename_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    files.write_json(path, {"old": 1})
    monkeypatch.setattr(files.os, "replace", crash)
    with pytest.raises(Crash):
        files.write_json(path, {"new": 2})
    assert files.read_json(path) == {"old": 1}


def test_a_folder_is_whole_or_absent(tmp_path, monkeypatch):
    path = tmp_path / "model"

    def half() -> None:
        with files.new_folder(path) as partial:
            (partial / "half").write_text("x")
            raise Crash

    with pytest.raises(Crash):
        half()
    assert not path.exists()
    with files.new_folder(path) as partial:
        (partial / "whole").write_text("y")
    assert [p.name for p in path.iterdir()] == ["whole"]
    with files.new_folder(path) as partial:
        (partial / "other").write_text("z")
    assert [p.name for p in path.iterdir()] == ["other"]
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_an_error_while_filling_keeps_the_folder_that_stood_there(tmp_path):
    path = tmp_path / "model"
    with files.new_folder(path) as partial:
        (partial / "kept").write_text("x")
    with pytest.raises(Crash), files.new_folder(path):
        raise Crash
    assert (path / "kept").exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_full_or_read_only_disk_is_the_machines_fault_and_says_the_way_out(tmp_path, monkeypatch, number):
    words = "place is read-only" if number == errno.EROFS else "free some space and run the same command again"

    def full(*_args):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(MachineError, match=words) as caught:
        files.write_text(tmp_path / "a", "text")
    assert caught.value.exit_code == 6
    assert not (tmp_path / "a").exists()


def test_a_full_disk_met_inside_a_library_is_the_machines_fault_too(tmp_path):
    def fill() -> None:
        with files.new_folder(tmp_path / "model"):
            raise RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)")

    with pytest.raises(MachineError, match="No space left on device"):
        fill()
    assert not list(tmp_path.iterdir())


def refused(folder, *names):
    with files.begun(folder / ".lock", ["spec"]):
        for name in names:
            files.write_text(folder / name, "written")
        raise InputError("no")


def test_of_work_that_is_refused_as_it_begins_nothing_is_left_but_what_was_there(tmp_path):
    (tmp_path / "kept").mkdir()
    folder = tmp_path / "kept/made/place"
    with pytest.raises(InputError, match="no"):
        refused(folder, "spec")
    assert list(tmp_path.rglob("*")) == [tmp_path / "kept"]


def test_what_was_done_before_work_is_refused_stays(tmp_path, monkeypatch):
    folder = tmp_path / "made"
    with pytest.raises(InputError, match="no"):
        refused(folder, "spec", "records")
    assert sorted(p.name for p in folder.iterdir()) == [".lock", "records", "spec"]
    # Nor is a crash a refusal: the next run goes on.
    with pytest.raises(OSError, match="died"), files.begun(tmp_path / "other/.lock", []):
        raise OSError("died")
    assert (tmp_path / "other/.lock").exists()
    # Somebody else's work is not taken back by who finds it locked.
    busy = tmp_path / "busy/.lock"
    monkeypatch.setattr(files, "locked", partial(files.locked, patience_seconds=0))
    with files.begun(busy, []):
        with pytest.raises(InputError, match="another command is running"), files.begun(busy, []):
            pytest.fail("two at work in one folder")
        assert busy.exists()


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_said_in_one_sentence(tmp_path, monkeypatch, number):
    def refuse(*_args):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.fcntl, "flock", refuse)
    with (
        pytest.raises(InputError, match=r"has no file locks .*. Choose a folder on a local disk"),
        files.locked(tmp_path / ".lock", patience_seconds=0),
    ):
        pytest.fail("at work without a lock")


def test_a_folder_that_is_replaced_as_a_whole_is_held_from_beside_it(tmp_path):
    place = tmp_path / "data"
    with (
        files.replacing(place, patience_seconds=0),
        pytest.raises(InputError, match=f"another command is running in {place}\\."),
        files.replacing(place, patience_seconds=0),
    ):
        pytest.fail("two at work on one folder")
    with files.replacing(place, patience_seconds=0):
        pass
    assert not list(tmp_path.iterdir())


def test_python_without_file_locks_is_told_so_at_once():
    code = "import sys; sys.modules['fcntl'] = None; import vestige.core.files"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stderr.splitlines()[-1].startswith("ImportError: Vestige needs the file locks of Linux or macOS")


def test_other_errors_stay_what_they_are(tmp_path):
    with pytest.raises(FileNotFoundError):
        files.read_json(tmp_path / "missing.json")


def test_a_torn_last_line_is_dropped_and_the_whole_ones_stay(tmp_path):
    log = tmp_path / "log.jsonl"
    files.append_lines(log, [files.json_line({"n": 1}), files.json_line({"n": 2})])
    with log.open("ab") as file:
        file.write(b'{"n": 3')
    files.drop_torn_line(log)
    files.append_lines(log, [files.json_line({"n": 4})])
    assert [r["n"] for r in files.read_jsonl(log)] == [1, 2, 4]


def test_rows_have_the_bytes_of_the_whole_list(tmp_path):
    shared = ["a\nb", "ü\u2028"]
    rows = [
        {"x": 1.5, "s": shared, "e": []},
        {"x": True, "s": shared, "e": {"k": [None]}},
        {"x": 1.5, "s": []},
        {"s": "1"},
    ]
    for given_rows in (rows, rows[:1], []):
        files.write_rows(tmp_path / "rows.json", given_rows)
        files.write_json(tmp_path / "whole.json", given_rows)
        assert (tmp_path / "rows.json").read_bytes() == (tmp_path / "whole.json").read_bytes()


def test_nan_never_reaches_a_file(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        files.write_json(tmp_path / "a.json", {"x": float("nan")})
    assert not (tmp_path / "a.json").exists()


def test_damaged_json_names_its_place(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(InputError, match=r"a\.jsonl, line 2, column"):
        list(files.read_jsonl(path))
    path.write_bytes(b'{"a": "\xff"}\n')
    with pytest.raises(InputError, match="line 1: not UTF-8"):
        list(files.read_jsonl(path))


@given(
    st.lists(
        st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"])),
            st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
        )
    )
)
def test_rows_come_back_as_they_went(tmp_path_factory, rows):
    path: Path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    files.write_jsonl(path, rows)
    assert list(files.read_jsonl(path)) == rows


def test_no_link_is_followed_when_something_is_written(tmp_path):
    victim, run = tmp_path / "thesis.txt", tmp_path / "run"
    victim.write_text("mine\n")
    run.mkdir()

    def linked(name):
        (run / name).symlink_to(victim)
        return run / name

    linked(".page.html.partial")
    files.write_text(run / "page.html", "a page")
    assert (run / "page.html").read_text() == "a page"
    linked(".model.partial")
    linked(".model.replaced")
    with files.new_folder(run / "model") as partial:
        (partial / "x").write_text("x")
    assert sorted(p.name for p in run.iterdir()) == ["model", "page.html"]
    for write in (
        lambda: files.append_lines(linked("log"), ["line\n"]),
        lambda: files.drop_torn_line(linked("torn")),
        lambda: files.locked(linked(".page.html.lock")).__enter__(),
    ):
        with pytest.raises(InputError, match="is a link, and nothing is written through a link"):
            write()
    linked("page.html.json")
    files.write_json(run / "page.html.json", {})
    assert victim.read_text() == "mine\n"


def test_a_folder_with_a_linked_folder_is_refused_before_work_begins_in_it(tmp_path):
    outside, run = tmp_path / "outside", tmp_path / "run"
    outside.mkdir()
    (run / "models").mkdir(parents=True)
    # The folder itself may be reached through a link: that is its owner's word.
    (tmp_path / "current").symlink_to(run)
    with files.locked(tmp_path / "current/.lock"):
        pass
    (run / "models/x").symlink_to(outside)
    with pytest.raises(InputError, match="run/models/x is a link"), files.locked(run / ".lock"):
        pytest.fail("at work in a folder with a link")
    assert not list(outside.iterdir())


def a_device(path):
    path.symlink_to("/dev/zero")


def a_link_to_a_pipe(path):
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


def a_sparse_file(path):
    with path.open("wb") as file:
        file.truncate(files.MOST_READ + 1)


READERS = (files.read_json, files.read_bytes, files.read_text, read_toml, lambda path: list(files.read_jsonl(path)))


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("hostile", [os.mkfifo, a_device, os.mkdir, a_link_to_a_pipe])
def test_only_regular_files_are_read(tmp_path, reader, hostile):
    path = tmp_path / "input.json"
    hostile(path)
    with pytest.raises(InputError, match=r"input\.json is a .* and not a regular file"):
        reader(path)


@pytest.mark.parametrize("reader", READERS[:4])
def test_a_file_beyond_the_limit_is_refused_before_it_is_read(tmp_path, reader):
    path = tmp_path / "input.json"
    a_sparse_file(path)
    with pytest.raises(InputError, match=f"has {files.MOST_READ + 1} bytes, and Vestige reads at most"):
        reader(path)


def test_a_link_to_a_regular_file_is_read(tmp_path):
    (tmp_path / "blob").write_text("[1]")
    (tmp_path / "input.json").symlink_to("blob")
    assert files.read_json(tmp_path / "input.json") == [1]


def test_a_line_beyond_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MOST_LINE", 8)
    (tmp_path / "rows.jsonl").write_text("[1]\n[123456789]\n")
    rows = files.read_jsonl(tmp_path / "rows.jsonl")
    assert next(rows) == [1]
    with pytest.raises(InputError, match="line 2: longer than 8 bytes"):
        next(rows)


def test_an_archive_may_not_grow_beyond_its_ratio(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MOST_SMALL", 1000)
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("small.json", "[1]")
        archive.writestr("bomb.json", b" " * 10**6)
    with zipfile.ZipFile(path) as archive:

        def member(name):
            info = archive.getinfo(name)
            return files.Unpacked(archive.open(info), info.compress_size, name)

        assert member("small.json").read() == b"[1]"
        with pytest.raises(InputError, match=r"bomb\.json unpacks to more than"):
            member("bomb.json").read()


def take_logs(path):
    from vestige.cli.logs import take

    take([str(path)], None)


def read_one_log(path):
    from vestige.logs import read_log

    read_log(path)


def load_data(path):
    from vestige.data.loaders import load_items

    load_items(path)


def compare_logs(path):
    from vestige.auditing.compare import compare

    compare({"a": path, "b": path})


@pytest.mark.parametrize("kind", ["a pipe", "a device"])
@pytest.mark.parametrize("read", [take_logs, read_one_log, load_data, compare_logs])
def test_a_special_file_is_called_that_and_not_absent(tmp_path, read, kind):
    path = tmp_path / "rows.csv"
    if kind == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(InputError, match=f"rows.csv is {kind} and not a regular file"):
        read(path)


def test_a_special_file_in_a_folder_of_logs_is_left_out_with_its_reason(tmp_path):
    from vestige.logs.folders import recognise

    os.mkfifo(tmp_path / "x.json")
    (tmp_path / "y.json").symlink_to("/dev/zero")
    (tmp_path / "z.json").symlink_to(tmp_path / "gone")
    reasons = {path.name: why for path, why in recognise([tmp_path]).left_out}
    assert reasons["x.json"] == "it is a pipe and not a regular file"
    assert reasons["y.json"] == "it is a device and not a regular file"
    assert "cannot be read" in reasons["z.json"]
