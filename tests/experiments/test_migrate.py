"""Records of older versions stay readable, and a record that was changed is noticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.load.records import read_record as read_for_analysis
from experiments.records.migrate import STEPS, migrate
from experiments.records.record import SCHEMA, Record, RecordError, check, seal
from experiments.records.store import read_record

OLD = {
    int(path.stem.split("_")[1]): path for path in Path(__file__).with_name("records").glob("version_*.json")
}


def test_there_is_an_old_record_and_a_step_for_every_older_version() -> None:
    assert sorted(OLD) == sorted(STEPS) == list(range(1, SCHEMA))


@pytest.mark.parametrize("version", sorted(OLD))
def test_an_old_record_is_read_with_all_that_it_says(version: int) -> None:
    old = json.loads(OLD[version].read_text())
    assert old["schema"] == version
    record = read_record(OLD[version])
    assert record.schema == SCHEMA
    for name in ("cell", "attempt", "identity", "labels", "metrics", "devices", "provenance"):
        assert getattr(record, name) == old[name]
    reading = read_for_analysis(OLD[version])
    assert not reading.problems
    assert reading.document is not None
    assert reading.document["metrics"] == old["metrics"]


def test_a_record_of_this_version_is_left_as_it_is() -> None:
    document = read_record(OLD[1]).document()
    assert migrate(document) == document


@pytest.mark.parametrize("version", [0, SCHEMA + 1, None, "1"])
def test_an_unknown_version_is_named_with_those_that_can_be_read(version: object) -> None:
    with pytest.raises(RecordError, match=f"record schema {version}, this version reads 1 to {SCHEMA}"):
        migrate({"schema": version})


def test_a_value_changed_after_writing_breaks_the_seal() -> None:
    document = read_record(OLD[1]).document()
    assert document["seal"] == seal(document)
    check(json.loads(json.dumps(document)))  # a round trip through JSON changes nothing
    document["metrics"] = {
        **document["metrics"],
        "samples_per_s": document["metrics"]["samples_per_s"] * 1.01,
    }
    with pytest.raises(RecordError, match="changed after it was written"):
        Record.of(document)


def test_a_value_changed_in_an_old_record_is_noticed_although_its_form_changes() -> None:
    old = json.loads(OLD[2].read_text())
    old["metrics"]["samples_per_s"] *= 1.01
    with pytest.raises(RecordError, match="changed after it was written"):
        migrate(old)
