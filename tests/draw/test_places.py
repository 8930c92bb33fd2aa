"""Placements and rank layouts: the pictures' sentences count what the pictures show."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitpipe.cluster import RankLayout
from bitpipe.draw.places import LayoutPart, PlacementPart, crossings
from bitpipe.draw.sheet import save, sheet
from bitpipe.schedule import PLACEMENTS, cyclic, vee

V4 = vee(4, 2).mirrored()


def layout(name):
    ranks = RankLayout(name=name, width=2, depth=4, devices_per_node=4)
    return LayoutPart(layout=ranks, placement=V4, title=name)


@given(st.integers(2, 16), st.integers(1, 6))
def test_v_crosses_devices_less_often_than_cyclic(depth, chunks):
    v = crossings(vee(depth, chunks))
    around = crossings(cyclic(depth, chunks))
    assert v == (chunks * (depth - 1), chunks - 1)
    assert around == (chunks * depth - 1, 0)


def test_the_note_counts_transfers_of_figure_1():
    notes = [
        PlacementPart(placement=PLACEMENTS[n](2, 2), title="", micro_batches=2).note()
        for n in ("cyclic", "v")
    ]
    assert "3 of 3 hand-overs" in notes[0]
    assert "12 transfers" in notes[0]
    assert "2 of 3 hand-overs" in notes[1]
    assert "1 stays on one" in notes[1]
    assert "8 transfers" in notes[1]


def test_replica_aware_keeps_gradients_inside_nodes_and_pays_with_p2p():
    assert "2 of 2 gradient groups" in layout("sequential").note()
    assert "0 of 6 P2P paths" in layout("sequential").note()
    assert "0 of 2 gradient groups" in layout("replica_aware").note()
    assert "4 of 6 P2P paths" in layout("replica_aware").note()


def test_a_gradient_group_holds_every_replica_of_its_stages():
    groups = layout("sequential").groups()
    assert groups == {(0, 3, 4, 7): [0, 3, 4, 7], (1, 2, 5, 6): [1, 2, 5, 6]}


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_parts_stack_on_one_sheet(tmp_path, suffix):
    figure = sheet([PlacementPart(placement=V4, title="V"), layout("sequential")], 8)
    save(figure, tmp_path / f"places.{suffix}")
    assert (tmp_path / f"places.{suffix}").stat().st_size > 5_000
