"""From records and wandb logs to tables, figures, claims, a report: reads results, runs nothing.

Nothing here imports torch. ``python -m analysis --help`` lists what there is; a new table or
figure is one function under :mod:`analysis.artefacts`.
"""
