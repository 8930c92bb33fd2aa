"""``python -m bitpipe.schedule show METHOD …``, ``search`` and ``list``: print, draw, improve, export."""

from __future__ import annotations

import argparse
import io
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from bitpipe.errors import InputError
from bitpipe.reader import until_reader_leaves
from bitpipe.schedule.errors import ProgramError
from bitpipe.schedule.placement import PLACEMENTS
from bitpipe.schedule.spec import ScheduleSpec

if TYPE_CHECKING:
    from bitpipe.schedule import Costs, Description, Method, Schedule
    from bitpipe.schedule.catalogue import Entry

TEXT, TORCH = ".txt", ".csv"
EXAMPLES = """\
examples:
  python -m bitpipe.schedule show bitpipe --depth 4 --micro-batches 8 --early-forward
  python -m bitpipe.schedule show chimera --depth 8 --micro-batches 8 --json
  python -m bitpipe.schedule show bitpipe --depth 4 --micro-batches 4 --out bitpipe.html
  python -m bitpipe.schedule search bitpipe --depth 8 --micro-batches 32 --transfer 0.1 --out better.txt
  python -m bitpipe.schedule list

--out draws by suffix: .svg .pdf .png a picture, .html an interactive page, .json a trace for
Perfetto, .txt the rows of actions, to be changed and shown again with file:PATH, .csv the same
for torch.distributed.pipelining (one direction only).
"""


class _Parser(argparse.ArgumentParser):
    """argparse without its usage text: bad input is one line and exit status 2."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (see --help)", file=sys.stderr)
        raise SystemExit(2)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, or 2 for bad input."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal without some character shows "?"
        sys.stdout.reconfigure(errors="replace")
    arguments = _parser().parse_args(argv)
    try:
        return {"list": _list, "show": _show, "search": _search}[arguments.command](arguments)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    except ProgramError as error:  # a schedule of the user's own: the reason, and the place in its grid
        print(error, file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m bitpipe.schedule",
        description="Print, draw, improve or export schedules. "
        "A forward of 1/D of the model takes 1, its backward 2.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="{show,search,list}")
    show = commands.add_parser(
        "show",
        help="generate one schedule and show it",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_spec(show)
    from bitpipe.schedule.search import command

    finder = commands.add_parser(
        "search",
        help="search for a faster order at given costs and within the same memory",
        epilog=command.EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_spec(finder)
    command.add_arguments(finder)
    listing = commands.add_parser("list", help="the methods and what each needs")
    listing.add_argument("--json", action="store_true", help="as JSON")
    listing.add_argument("-D", "--depth", type=int, default=8, help="of the figures (default 8)")
    listing.add_argument("-N", "--micro-batches", type=int, default=16, help="of the figures (default 16)")
    return parser


def _add_spec(parser: argparse.ArgumentParser) -> None:
    """What names a schedule, and how to show it."""
    parser.add_argument("method", help="a name from 'list', or file:PATH or module:function for your own")
    parser.add_argument("--depth", "-D", type=int, required=True, metavar="D", help="devices of the pipeline")
    parser.add_argument("--micro-batches", "-N", type=int, required=True, metavar="N", help="per iteration")
    parser.add_argument("--chunks", type=int, metavar="V", help="chunks per device and direction")
    parser.add_argument("--cap", type=int, metavar="CHUNKS", help="most chunks of activations on a device")
    parser.add_argument("--early-forward", action="store_true", help="the cap that removes middle bubbles")
    parser.add_argument(
        "--placement", metavar="NAME", help=f"{', '.join(PLACEMENTS)}; default: the method's own"
    )
    parser.add_argument("--split-backward", action="store_true", help="input and weight gradient apart")
    parser.add_argument("--pad", action="store_true", help="empty micro-batches up to a multiple of D")
    parser.add_argument("--json", action="store_true", help="print figures as JSON, no timeline")
    parser.add_argument("--out", type=Path, metavar="FILE", help="draw: .svg .pdf .png .html .json .txt .csv")
    parser.add_argument(
        "--width", type=int, metavar="COLUMNS", help="of the timeline; default: the terminal's"
    )


def _spec(arguments: argparse.Namespace) -> ScheduleSpec:
    return ScheduleSpec(
        method=arguments.method,
        depth=arguments.depth,
        micro_batches=arguments.micro_batches,
        chunks=arguments.chunks,
        placement=arguments.placement,
        cap=arguments.cap,
        early_forward=arguments.early_forward,
        split_backward=arguments.split_backward,
        pad=arguments.pad,
    )


def _show(arguments: argparse.Namespace) -> int:
    from bitpipe.schedule import UNIT, generate

    _check_out(arguments)
    return _present(generate(_spec(arguments)), UNIT, arguments, {}, [])


def _search(arguments: argparse.Namespace) -> int:
    from bitpipe.schedule.search import command

    _check_out(arguments)
    found, costs = command.run(_spec(arguments), arguments)
    return _present(found.schedule, costs, arguments, command.outcome(found), command.lines(found))


def _check_out(arguments: argparse.Namespace) -> None:
    from bitpipe.draw import check_suffix

    if arguments.out is not None and not _wants_rows(arguments.out):
        check_suffix(arguments.out, TEXT, TORCH)


def _wants_rows(out: Path) -> bool:
    return out.suffix.lower() in (TEXT, TORCH)


def _present(
    schedule: Schedule,
    costs: Costs,
    arguments: argparse.Namespace,
    outcome: dict[str, object],
    remarks: list[str],
) -> int:
    """Draw or write, then print figures; ``outcome`` goes into JSON, ``remarks`` below the text.

    The drawing is at ``costs``; the figures are at unit costs, where they are exact.
    """
    from bitpipe.draw import Panel, write
    from bitpipe.schedule import describe, evaluate

    figures = describe(schedule)
    panel = Panel(timeline=evaluate(schedule, costs), placement=schedule.placement, title=_title(schedule))
    if arguments.out is not None and _wants_rows(arguments.out):
        _write_rows(schedule, arguments.out)
    elif arguments.out is not None:
        write([panel], arguments.out)
    if arguments.json:
        print(json.dumps({**asdict(figures), **outcome}, allow_nan=False))
        return 0
    from bitpipe.draw.text import NARROWEST, draw_text

    width = arguments.width or max(NARROWEST, shutil.get_terminal_size((100, 24)).columns)
    print(panel.title, draw_text(panel, width), "", *_lines(figures), *remarks, sep="\n")
    if arguments.out is not None:
        print(f"\nwritten: {arguments.out}")
    return 0


def _write_rows(schedule: Schedule, path: Path) -> None:
    """One row of actions per device: what ``file:PATH`` reads."""
    from bitpipe.schedule import to_torch_csv

    rows = (" ".join(map(str, order)) for order in schedule.orders)
    torch = path.suffix.lower() == TORCH
    text = to_torch_csv(schedule) if torch else "\n".join(rows) + "\n"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError("out", path, f"cannot be written: {error.strerror}") from None


def _title(schedule: Schedule) -> str:
    from bitpipe.schedule import METHODS

    method = METHODS.get(schedule.method)
    about = [method.title if method else schedule.method]
    about += [f"D={schedule.depth}", f"N={schedule.micro_batches}", f"v={schedule.chunks}"]
    about.append(f"{schedule.placement.name} placement")
    if schedule.cap is not None:
        about.append(f"cap {schedule.cap} chunks")
    if schedule.split_backward:
        about.append("split backward")
    return ", ".join(about)


def _lines(figures: Description) -> list[str]:
    """The figures for people: name, value, unit."""
    peaks = figures.peak_activation_per_device
    per_device = " ".join(f"{peak:g}" for peak in peaks)
    bubbles = " ".join(f"{100 * share:.3g}" for share in figures.bubble_per_device)
    bound = f"{figures.lower_bound:.6g}"
    gap = figures.distance_to_bound
    bound += ", met" if gap < 1e-9 else f", {gap:.6g} below the makespan"
    return [
        f"makespan          {figures.makespan:.6g} (a forward of 1/D of the model is 1, its backward 2)",
        f"lower bound       {bound}",
        f"bubble ratio      {100 * figures.bubble_ratio:.4g} %  (per device, %: {bubbles})",
        f"idle              {figures.forward_idle:.4g} before a device's first backward, "
        f"{figures.backward_idle:.4g} from then on (mean over devices)",
        f"peak activations  {min(peaks):g} to {max(peaks):g} Ma  (per device: {per_device})",
        f"transfers         {figures.transfers} messages across devices, activations and gradients",
    ]


def _list(arguments: argparse.Namespace) -> int:
    from bitpipe.schedule.catalogue import catalogue

    entries = list(catalogue(arguments.depth, arguments.micro_batches))
    if arguments.json:
        print(json.dumps([_entry(entry) for entry in entries]))
        return 0
    head = ("method", "copies", "peak Ma", "bubble", "of span", "chunks", "cap", "needs", "what it is")
    lines: list[tuple[str, ...]] = []
    for entry in entries:
        method = entry.method
        figures = ("–", "–", "–")
        if entry.peak is not None and entry.bubble_ratio is not None and entry.span_bubble_ratio is not None:
            figures = (f"{entry.peak:g}", f"{entry.bubble_ratio:.1%}", f"{entry.span_bubble_ratio:.1%}")
        lines.append(
            (
                method.name,
                str(entry.copies),
                *figures,
                f"{method.chunks}{_other_chunks(method)}",
                "tunable" if method.tunable_cap else "fixed",
                method.needs,
                f"{method.title}: {method.description}",
            )
        )
    widths = [max(len(line[column]) for line in [head, *lines]) for column in range(len(head) - 1)]

    def say(line: Sequence[str]) -> None:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, [*widths, 0], strict=True)).rstrip())

    say(head)
    family = ""
    for entry, line in zip(entries, lines, strict=True):
        if entry.method.family != family:
            family = entry.method.family
            print(f"{family}:")
        say(line)
    print(
        f"\ncopies of the weights; peak activations and bubble at D={arguments.depth}, "
        f"N={arguments.micro_batches}; 'of span': of the longest device's own span.\n"
        "Where the cap is tunable, show METHOD --early-forward or --cap trades memory for a smaller bubble.\n"
        "Your own: file:PATH (action text) or module:function."
    )
    return 0


def _other_chunks(method: Method) -> str:
    if not method.any_chunks:
        return ""
    return ", any" if method.chunk_step == 1 else f", multiples of {method.chunk_step}"


def _entry(entry: Entry) -> dict[str, object]:
    method = entry.method
    return {
        "method": method.name,
        "title": method.title,
        "family": method.family,
        "what": method.description,
        "placements": list(method.placements),
        "chunks": method.chunks,
        "any_chunks": method.any_chunks,
        "cap": method.tunable_cap,
        "needs": method.needs,
        "copies": entry.copies,
        "peak_activation": entry.peak,
        "bubble_ratio": entry.bubble_ratio,
        "span_bubble_ratio": entry.span_bubble_ratio,
        "refused": entry.refused or None,
    }


if __name__ == "__main__":
    sys.exit(until_reader_leaves(main))
