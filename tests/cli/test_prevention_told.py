"""What is printed of a trial of prevention."""

import pytest

from vestige.cli.probe_repair import print_prevention
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.probes.prevention_table import (
    ArmRow,
    Prediction,
    PreventionFolder,
    PreventionTable,
    read_table,
    write_table,
)


def table(**changes) -> PreventionTable:
    lost = Estimate("harm_logp", "nats", 0.4375, 0.25, 0.5, 12, "two-way robust, 3 seeds x 12 clusters")
    arms = (ArmRow("none", "at risk", "logp", "", lost), ArmRow("random", "at risk", "logp", "none", lost))
    auroc = Estimate("auroc", "share", 0.75, 0.5, 0.875, 40, "Gaffke, two samples")
    values = {
        "method": "gd",
        "forget": "edge:A_B",
        "seeds": (0, 1, 2),
        "n_forget": 20,
        "n_retain": 19,
        "n_added": 4,
        "n_pool": 20,
        "n_evaluated": 20,
        "n_at_risk": 5,
        "rule": "forget<=0.5*target",
        "risk_by": "combined",
        "probe_k": 0,
        "steps": {"none": (10, 12, 14), "random": (8, 8, 10)},
        "reached": {"none": 3, "random": 2},
        "arms": arms,
        "predictions": (Prediction("embedding", auroc),),
    }
    return PreventionTable(**{**values, **changes})


def test_arms_stand_side_by_side_and_what_was_not_measured_is_left_out(capsys):
    print_prevention(table())
    said = capsys.readouterr().out
    rows = {
        line.split("│")[1].strip(): [c.strip() for c in line.split("│")[2:-1]]
        for line in said.splitlines()
        if "│" in line
    }
    assert rows["at risk, lost"] == ["0.44 [0.25, 0.50]", "-"]
    assert rows["against none"] == ["-", "0.44 [0.25, 0.50]"]
    assert rows["rule met"] == ["3 of 3", "2 of 3"]
    assert not {"all, lost", "holes, fresh probes"} & rows.keys()
    assert "embedding            0.75 [0.50, 0.88]" in said
    assert "fresh" not in said


def test_it_says_that_no_fresh_probe_was_left(capsys):
    print_prevention(table(probe_k=2))
    assert "no fresh probe was left to test" in capsys.readouterr().out


def test_what_is_written_is_read_and_what_is_damaged_is_refused_by_its_field(tmp_path):
    folder = PreventionFolder(tmp_path)
    write_table(folder, table())
    assert read_table(folder) == table()
    assert folder.rows.read_text().splitlines()[1].startswith("none,at risk,logp,,0.4375,0.25,0.5,12,nats")
    folder.table.write_text(folder.table.read_text().replace('"probe_k"', '"probes"'))
    with pytest.raises(InputError, match="no field 'probe_k'"):
        read_table(folder)
