"""The text of ``python run.py --help``, written from what ``conf/`` holds."""

from __future__ import annotations

from pathlib import Path

from experiments.cell import BACKENDS

_TEXT = """\
usage: python run.py [GROUP=NAME | KEY=VALUE]...            one cell
       python run.py +experiment=NAME [KEY=VALUE]... -m     a table or figure: all its cells

  python run.py +experiment=table6_ablation -m
  python run.py +experiment=table6_ablation backend=virtual model=bert_tiny -m
  python run.py +experiment=table6_ablation -m dry_run=true
  python run.py method=bitpipe depth=8 micro_batches=4*depth

backend:     {backends}
             simulate: the cost model of a cluster, no ranks; virtual: real ranks on this CPU, timed
             by virtual clocks; cuda: GPUs. emulate and cpu are for diagnosis. Default: cuda where
             GPUs are visible or the sweep goes to Slurm, else simulate.
{groups}
keys:        depth (D), width (W), micro_batch_size (B), micro_batches (N) or global_batch (B·N·W);
             each a number or arithmetic over those before it, as 4*depth or 32//depth
             method.KEY, model.KEY, cluster.KEY; iterations, measured, precision, seed
             data.path=FILE or FOLDER   text to train on (default: a corpus that Python carries)
             rerun=true                 run finished cells again
             dry_run=true               list cells and shapes, start nothing
             draw=false                 no table and figures at the end
             results=FOLDER             default: results
             wandb.mode=offline | online | disabled
launcher:    hydra/launcher=local | slurm forces one; default: slurm where sbatch is, else local
more:        --cfg job prints the composed configuration, --hydra-help explains Hydra
afterwards:  python -m analysis NAME    tables and figures again, from results/ alone
"""


def text(conf: Path) -> str:
    """The help text."""
    groups = []
    for group in ("experiment", "method", "model", "cluster", "calibration"):
        names = sorted(path.stem for path in (conf / group).glob("*.yaml"))
        groups.append(_wrapped(f"{group}:", names))
    return _TEXT.format(backends=", ".join(BACKENDS), groups="\n".join(groups))


def _wrapped(head: str, names: list[str]) -> str:
    import textwrap

    return textwrap.fill(
        ", ".join(names) or "none", 100, initial_indent=f"{head:<13}", subsequent_indent=" " * 13
    )
