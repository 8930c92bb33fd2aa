"""``python -m analysis <id> | all | claims | report | compare A B | dashboard``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bitpipe.errors import InputError


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m analysis", description=__doc__)
    parser.add_argument("what", help="id of a table or figure, or list, all")
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR")
    parser.add_argument(
        "--source",
        default="records",
        metavar="records|wandb-offline|wandb:ENTITY/PROJECT",
        help="where to read from; with wandb-offline, --results is also searched for run-*.wandb",
    )
    arguments = parser.parse_args(argv)
    try:
        return _run(arguments)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2


def _run(arguments: argparse.Namespace) -> int:
    from analysis import render
    from analysis.registry import artefacts, find
    from analysis.results import Results

    if arguments.what == "list":
        for one in artefacts().values():
            print(f"{one.id:28} {one.title}")
        return 0
    results = Results(arguments.results, arguments.source)
    if arguments.what == "all":
        return render.every(results)
    if arguments.what == "claims":
        return render.claims(results)
    if arguments.what == "report":
        from analysis.report import write_report

        print(write_report(results))
        return 0
    return render.one(find(arguments.what), results)


if __name__ == "__main__":
    sys.exit(main())
