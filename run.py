"""Runs one cell, or with -m a whole experiment. ``python run.py --help`` says how."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

ROOT = Path(__file__).resolve().parent


def main(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit status.

    0; 1 a cell failed or could not be recorded; 2 bad input; 130 Ctrl-C; 143 SIGTERM.
    """
    if "-h" in arguments or "--help" in arguments:
        from experiments.composing.help import text

        print(text(ROOT / "conf"), end="")
        return 0
    try:
        from experiments.composing.command_line import one_line, prepare
        from experiments.records.store import NotWritten
        from experiments.running.interrupt import signal_of
        from experiments.running.outcome import SweepFailed
    except ModuleNotFoundError as error:
        hint = "make install, then . .venv/bin/activate"
        print(f"{error.name}: not installed for {sys.executable} ({hint})", file=sys.stderr)
        return 2

    try:
        ready = prepare(arguments, ROOT / "conf")
        if ready.sentence:
            print(ready.sentence, file=sys.stderr if ready.answers else sys.stdout, flush=True)
        _hydra(ready.arguments)
    except SweepFailed as error:
        print(error, file=sys.stderr)
    except KeyboardInterrupt as error:
        print("interrupted", file=sys.stderr)
        return 128 + signal_of(error)
    except NotWritten as error:
        print(error, file=sys.stderr)
        return 1
    except Exception as error:
        line = one_line(error, ROOT / "conf")
        if line is None:
            raise
        print(line, file=sys.stderr)
        return 2
    return _finish()


def _hydra(arguments: Sequence[str]) -> None:
    """Compose and run; raises what composing or running raises."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # else Hydra prints errors itself, in several lines, and exits
    import hydra
    from omegaconf import DictConfig

    from experiments.running.interrupt import catch
    from experiments.running.single import run_single

    raised: list[Exception] = []

    def one_cell(composed: DictConfig) -> None:
        try:
            run_single(composed)
        except Exception as error:  # kept from Hydra, which would print a line of its own
            raised.append(error)

    sys.argv = [sys.argv[0], *arguments]
    catch()
    hydra.main(version_base="1.3", config_path=str(ROOT / "conf"), config_name="config")(one_cell)()
    if raised:
        raise raised[0]


def _finish() -> int:
    """Print the experiment's table; the exit status says whether a cell failed."""
    from experiments.running.outcome import ended

    failed = False
    for outcome in ended:
        failed |= bool(outcome.failed)
        if outcome.draws:
            from analysis.__main__ import main as analysis

            analysis([outcome.experiment, "--results", str(outcome.results)])
    return int(failed)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Ctrl-C while imports run: nothing was started, so there is nothing to stop."""
    os.write(2, b"interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    from bitpipe.reader import until_reader_leaves

    sys.exit(until_reader_leaves(lambda: main(sys.argv[1:])))
