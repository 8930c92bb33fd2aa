"""``python -m bitpipe.simulate predict | calibrate``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from bitpipe.errors import InputError
from bitpipe.simulate import conf
from bitpipe.simulate.calibration import PARAMETERS

WRITTEN = "# Written by: python -m bitpipe.simulate calibrate"
"""How the files that ``calibrate`` writes begin: only these are written over."""

DEPTHS = (4, 8)
"""The depths of one node."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bitpipe.simulate", description="The cluster cost model.")
    commands = parser.add_subparsers(required=True)
    fit = commands.add_parser(
        "calibrate",
        help="fit parameters to measured cells",
        description="Fit at most five parameters to cells of a table and print what the fit is worth.",
    )
    fit.add_argument("--cells", type=Path, default=None, help="table of measured cells (default: Table 6)")
    fit.add_argument("--variants", nargs="+", default=["full"], help="fit to these variants (default: full)")
    fit.add_argument("--depths", nargs="+", type=int, help="and depths (default: 4 8, if measured)")
    fit.add_argument("--micro-batches", nargs="+", type=int, default=[], help="and N (default: all)")
    fit.add_argument(
        "--parameters", nargs="+", default=["compute_efficiency"], metavar="NAME", help=", ".join(PARAMETERS)
    )
    fit.add_argument("--base", default="physical", help="calibration that gives all other values")
    fit.add_argument("--cluster", default="a800", help="cluster on which the cells were measured")
    fit.add_argument("--out", type=Path, help="write the calibration to this YAML file")
    fit.set_defaults(run=_calibrate)
    show = commands.add_parser("table", help="all measured cells beside the prediction")
    show.add_argument("--cells", type=Path, default=None, help="table of measured cells (default: Table 6)")
    show.add_argument("--calibration", default="physical")
    show.add_argument("--cluster", default="a800")
    show.set_defaults(run=_table)
    return parser


def _table(arguments: argparse.Namespace) -> None:
    from bitpipe.simulate.cells import ABLATION, read_cells
    from bitpipe.simulate.predict import predict

    cluster, calibration = conf.cluster(arguments.cluster), conf.calibration(arguments.calibration)
    cells = read_cells(arguments.cells or ABLATION)
    print(f"calibration {calibration.name} on {cluster.name}; samples/s")
    print(f"{'cell':40} {'measured':>9} {'simulated':>9} {'error':>7}")
    for cell in cells:
        found = predict(cell.job, cluster, calibration)
        off = found.samples_per_s / cell.samples_per_s - 1
        note = "" if found.calibrated else f"  uncalibrated: {'; '.join(found.doubts)}"
        print(f"{cell!s:40} {cell.samples_per_s:9.2f} {found.samples_per_s:9.2f} {off:+7.2%}{note}")


def _calibrate(arguments: argparse.Namespace) -> None:
    from bitpipe.simulate.cells import ABLATION, read_cells, select
    from bitpipe.simulate.fit import fit, leave_a_row_out, null_errors

    if arguments.out:
        _check_out(arguments.out)
    cluster, base = conf.cluster(arguments.cluster), conf.calibration(arguments.base)
    every = read_cells(arguments.cells or ABLATION)
    if arguments.depths is None:
        measured = {cell.job.schedule.depth for cell in every}
        arguments.depths = [depth for depth in DEPTHS if depth in measured] or list(DEPTHS)
    cells = select(
        every,
        variants=arguments.variants,
        depths=arguments.depths,
        micro_batches=arguments.micro_batches,
    )
    name = arguments.out.stem if arguments.out else "fitted"
    made = fit(cells, cluster, base, arguments.parameters, name=name)
    print(f"fitted to {len(cells)} cells, {made.degrees_of_freedom} degrees of freedom left")
    for parameter in made.calibration.fitted:
        print(f"  {parameter:24} {getattr(made.calibration, parameter):.4g}")
    _print_errors("fitted cells", [str(cell) for cell in cells], made.errors(cells))
    rows = {cell.row for cell in cells}
    held = [cell for cell in every if cell.row in rows and cell not in cells]
    if held:
        _print_errors("other cells of the same rows", [str(cell) for cell in held], made.errors(held))
        full = [cell for cell in every if cell.variant == "full"]
        changed = [cell for cell in held if cell.variant in ("without_v", "without_e")]
        _summary("  without_v and without_e alone", made.errors(changed))
        _summary("  null model there: as the full method's", null_errors(changed, full))
    away = [cell for cell in every if cell.row not in rows and cell.job.schedule.depth in arguments.depths]
    if away:
        _print_errors("other rows of these depths", [str(cell) for cell in away], made.errors(away))
    left = leave_a_row_out(made, base, arguments.parameters)
    if left:
        _print_errors("leave a row out", list(left), tuple(left.values()))
    if arguments.out:
        _write(arguments, made.calibration, [str(cell) for cell in cells])


def _check_out(path: Path) -> None:
    """Refuse, before anything is fitted, a file that could not or must not be written."""
    try:
        if not path.parent.is_dir():
            raise InputError("out", path, f"there is no folder {path.parent}")
        if path.exists():
            if not path.is_file():
                raise InputError("out", path, "expected a file")
            with path.open("rb") as file:
                if not file.read(len(WRITTEN)) == WRITTEN.encode():
                    raise InputError("out", path, "exists and was not written by this command")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise InputError("out", path, "cannot be written: Permission denied")
    except OSError as error:
        raise InputError("out", path, f"cannot be written: {error.strerror}") from None


def _print_errors(title: str, names: Sequence[str], errors: Sequence[float]) -> None:
    print(title)
    for name, error in zip(names, errors, strict=True):
        print(f"  {name:40} {error:+7.2%}")
    _summary("  all", errors)


def _summary(title: str, errors: Sequence[float]) -> None:
    sizes = [abs(error) for error in errors]
    if sizes:
        print(f"{title}: mean {sum(sizes) / len(sizes):.2%}, worst {max(sizes):.2%}")


def _write(arguments: argparse.Namespace, calibration: object, cells: Sequence[str]) -> None:
    import yaml

    from bitpipe.simulate.calibration import Calibration

    assert isinstance(calibration, Calibration)
    kept = [] if set(calibration.fitted) <= set(arguments.parameters) else calibration.cells.split("; ")
    described = "; ".join(dict.fromkeys(filter(None, (*kept, *cells))))
    sources = dict(calibration.sources) | dict.fromkeys(arguments.parameters, "fitted to the cells")
    data = asdict(replace(calibration, cells=described, sources=sources))
    data |= {"fitted": list(calibration.fitted), "tokens": list(calibration.tokens or ())}
    command = " ".join(f"--{k.replace('_', '-')} {' '.join(map(str, v))}" for k, v in _given(arguments))
    text = f"{WRITTEN} {command}\n" + yaml.safe_dump(data, sort_keys=False, width=110)
    try:
        arguments.out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError("out", arguments.out, f"cannot be written: {error.strerror}") from None
    print(f"wrote {arguments.out}")


def _given(arguments: argparse.Namespace) -> list[tuple[str, list[object]]]:
    keys = ("cells", "variants", "depths", "micro_batches", "parameters", "base", "cluster", "out")
    values = ((key, getattr(arguments, key)) for key in keys)
    return [(key, value if isinstance(value, list) else [value]) for key, value in values if value]


if __name__ == "__main__":
    sys.exit(main())
