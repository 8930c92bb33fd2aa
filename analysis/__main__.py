"""Tables, figures, claims and the report, from results alone; runs nothing."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path

from bitpipe.errors import InputError
from bitpipe.reader import until_reader_leaves

EPILOGUE = """\
what:
  list                       every table and figure
  table6_ablation, …         one of them: CSV, Markdown, LaTeX; PDF, PNG, SVG
  all                        all of them, the claims and the report
  claims                     the paper's claims against the records
  report                     one HTML page with everything
  compare A B                A and B: DIR or DIR:column=value,…; exit status 1 if B is slower
  verify [table6_ablation]   --results against --reference, point by point, of everything or one experiment;
                             exit status 1 unless all agree
  reference                  makes --reference anew from --results
  artifact                   writes the table of ARTIFACT.md from the configurations
  dashboard ENTITY/PROJECT   a wandb workspace and report; --dry-run prints their JSON
"""
DEFAULT = Path("results")
ARGUMENTS = {"compare": ("A", "B"), "dashboard": ("ENTITY/PROJECT",)}
OPTIONAL = {"verify": ("EXPERIMENT",)}


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, 1 (slower, different, or nothing drawn), 2 bad input."""
    arguments = _parser().parse_args(argv)
    try:
        wanted = ARGUMENTS.get(arguments.what, ())
        optional = OPTIONAL.get(arguments.what, ())
        if not len(wanted) <= len(arguments.more) <= len(wanted) + len(optional):
            needs = " ".join([*wanted, *(f"[{name}]" for name in optional)]) or "no further argument"
            raise InputError(arguments.what, " ".join(arguments.more) or "nothing", f"expected {needs}")
        _check(arguments)
        return COMMANDS.get(arguments.what, _one)(arguments)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2


def _check(arguments: argparse.Namespace) -> None:
    """Refuse what no command could use, before any reads or writes."""
    from analysis.load.results import check_source

    check_source(arguments.source)
    if not (math.isfinite(arguments.noise) and arguments.noise >= 0):
        raise InputError("noise", arguments.noise, "expected a finite number of percent, at least 0")
    wanted = arguments.what in ("all", "claims", "report") or (
        arguments.what == "list" and arguments.results != DEFAULT
    )
    online = arguments.source.startswith("wandb:")
    if wanted and not online and not arguments.results.is_dir():
        raise InputError("results", arguments.results, "no such results folder")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m analysis",
        description=__doc__,
        epilog=EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", help="see below")
    parser.add_argument("more", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, default=DEFAULT, metavar="DIR")
    parser.add_argument(
        "--source",
        default="records",
        metavar="SOURCE",
        help="records (default), wandb-offline (run-*.wandb below --results) or wandb:ENTITY/PROJECT",
    )
    parser.add_argument(
        "--reference",
        type=Path,
        default=Path("results/reference"),
        metavar="DIR",
        help="verify, reference: the expected results (default: results/reference)",
    )
    parser.add_argument("--by", default="cell", help="compare: pair by cell (default), method or cluster")
    parser.add_argument("--noise", type=float, default=1.0, metavar="PERCENT", help="compare: default 1")
    parser.add_argument("--dry-run", action="store_true", help="dashboard: print, send nothing")
    return parser


def _list(_: argparse.Namespace) -> int:
    from analysis.registry import artefacts

    for one in artefacts().values():
        print(f"{one.id:28} {one.title}")
    return 0


def _one(arguments: argparse.Namespace) -> int:
    from analysis.drawing import render
    from analysis.load.results import Results
    from analysis.registry import artefacts
    from bitpipe.errors import choose

    choose("what", arguments.what, [*artefacts(), *COMMANDS])
    return render.render_one(artefacts()[arguments.what], Results(arguments.results, arguments.source))


def _all(arguments: argparse.Namespace) -> int:
    from analysis.drawing import render
    from analysis.load.results import Results

    return render.every(Results(arguments.results, arguments.source))


def _claims(arguments: argparse.Namespace) -> int:
    from analysis.drawing import render
    from analysis.load.results import Results

    return render.claims(Results(arguments.results, arguments.source))


def _report(arguments: argparse.Namespace) -> int:
    from analysis.load.results import Results
    from analysis.report import write_report

    print(write_report(Results(arguments.results, arguments.source)))
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    from analysis.comparing.compare import compare, select
    from analysis.drawing import render

    a, b = (select(text) for text in arguments.more)
    return render.comparison(compare(a, b, by=arguments.by, noise_percent=arguments.noise), arguments.results)


def _verify(arguments: argparse.Namespace) -> int:
    from analysis.comparing.verify import verify
    from analysis.comparing.verify_text import show

    items = verify(arguments.results, arguments.reference, *arguments.more)
    return show(items, arguments.results, arguments.reference)


def _reference(arguments: argparse.Namespace) -> int:
    from analysis.comparing.reference import make

    print(f"{make(arguments.results, arguments.reference)} records in {arguments.reference}")
    return 0


def _artifact(_: argparse.Namespace) -> int:
    from analysis.artifact import write

    print(write())
    return 0


def _dashboard(arguments: argparse.Namespace) -> int:
    from analysis.dashboard import dry_run, publish

    (project,) = arguments.more
    if arguments.dry_run:
        print(dry_run(project), end="")
    else:
        print("\n".join(publish(project)))
    return 0


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "list": _list,
    "all": _all,
    "claims": _claims,
    "report": _report,
    "compare": _compare,
    "verify": _verify,
    "reference": _reference,
    "artifact": _artifact,
    "dashboard": _dashboard,
}

if __name__ == "__main__":
    sys.exit(until_reader_leaves(main))
