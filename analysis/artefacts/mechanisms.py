"""Table 2: what each method consists of, read off the registered methods."""

from __future__ import annotations

import pandas as pd

from analysis.comparing.grid import Block, Grid, entries
from analysis.drawing.output import Rendered, Table
from analysis.load.paper import printed
from analysis.load.results import Results
from analysis.registry import artefact
from bitpipe.schedule import METHODS, Method

TITLE = "Table 2: mechanisms of the methods"
COLUMNS = ["partition", "schedule", "device_mapping", "gradient_sync", "needs"]
_PARTITION = {"sequential": "sequential", "cyclic": "cyclic", "v": "V"}
_MAPPING = {
    "sequential": "sequential",
    "megatron": "sequential",  # stages in sequence along the ranks, each with its data-parallel replicas
    "replica_aware": "across nodes",
    "released": "across nodes",
}
_SYNC = {"late": "after compute", "eager": "eager"}


@artefact("table2_mechanisms", title=TITLE, needs_records=False)
def table2_mechanisms(results: Results) -> Rendered:
    """The registered methods, those of the paper first, each beside what the paper prints."""
    paper = {str(row["method"]): row for row in printed("table2_mechanisms").astype(str).to_dict("records")}
    rows, notes = [], []
    for name in [*paper, *(name for name in METHODS if name not in paper)]:
        row = mechanism(METHODS[name])
        differs = [column for column in COLUMNS if name in paper and row[column] != paper[name][column]]
        rows.append({**row, "in_paper": name in paper, "differs_from_paper": ", ".join(differs)})
        notes += [
            f"{row['title']}: {column.replace('_', ' ')} is {row[column]} here, "
            f"{paper[name][column]} in the paper."
            for column in differs
        ]
    frame = pd.DataFrame(rows)
    table = Table(name="table2_mechanisms", title=TITLE, frame=frame, grid=_grid(frame, tuple(notes)))
    return Rendered(tables=(table,))


def mechanism(method: Method) -> dict[str, str]:
    """A method's row of Table 2, from its definition."""
    directions = "two directions" if method.bidirectional else "one direction"
    return {
        "method": method.name,
        "title": method.title,
        "partition": _PARTITION[method.placements[0]],
        "schedule": f"{directions} interleaved" if method.chunks > 1 else directions,
        "device_mapping": _MAPPING[method.layout],
        "gradient_sync": _SYNC[method.sync_mode],
        "needs": "none" if method.needs == "–" else method.needs,
    }


def _grid(frame: pd.DataFrame, notes: tuple[str, ...]) -> Grid:
    def block(title: str, rows: pd.DataFrame) -> Block:
        lines = (entries(list(line)) for line in rows[["title", *COLUMNS]].itertuples(index=False))
        return Block(title=title, rows=tuple(lines))

    blocks = [block("methods of the paper", frame[frame["in_paper"]])]
    if (~frame["in_paper"]).any():
        blocks.append(block("further ones", frame[~frame["in_paper"]]))
    header = ("method", "partition", "schedule", "device mapping", "gradient sync", "needs")
    return Grid(header=header, blocks=tuple(blocks), notes=notes, text_columns=len(header))
