"""Table 4: the models, with parameters and FLOPs computed from their configurations."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from analysis.drawing.labels import MODELS
from analysis.drawing.output import Rendered, Table
from analysis.load.paper import printed
from analysis.load.results import NoResults, Results
from analysis.registry import artefact
from analysis.remarks import remarks
from bitpipe.models import ModelConfig, arithmetic
from bitpipe.simulate import conf


@artefact("table4_models", title="Table 4: models")
def table4_models(results: Results) -> Rendered:
    """Computed parameters beside the printed ones, FLOPs of a sample, and a run of each in context."""
    ours = results.experiment("table4_models")
    paper = printed("table4_models").set_index("model")["parameters"]
    rows = []
    for row in ours.to_dict("records"):
        reading = results.loaded.readings.get(str(row["path"]))
        if reading is None or reading.document is None:
            continue  # the remarks count it
        model = ModelConfig.from_mapping(reading.document["identity"]["job"]["model"])
        printed_count = paper.get(model.name.replace("_", "-")) if _papers(model) else None
        count = arithmetic.parameters(model)
        rows.append(
            {
                "model": MODELS.get(model.name, model.name),
                "origin": row["origin"],
                "layers": model.layers,
                "heads": model.heads,
                "hidden": model.hidden,
                "sequence": model.sequence,
                "vocabulary": model.vocabulary,
                "parameters": count,
                "paper_parameters": printed_count,
                "error_percent": None if printed_count is None else 100 * (count / printed_count - 1),
                "training_flops_per_sample": arithmetic.training_flops(model, 1),
                "head_share_of_flops": arithmetic.head_forward_flops(model, 1)
                / arithmetic.stage_forward_flops(model, 1, 0, 1),
                "samples_per_s": row["samples_per_s"],
                "model_flops_utilisation": (row["metrics"] or {}).get("model_flops_utilisation"),
            }
        )
    note = "samples/s: unless swept, BitPipe on one node of 8, D = N = 8, B = 4 (BERT-64) and 1 (GPT-96)"
    if not rows:
        raise NoResults(results.root, "table4_models")
    frame = pd.DataFrame(rows)
    return Rendered(
        tables=(Table(name="table4_models", title="Table 4: models", frame=frame),),
        notes=(note, *remarks(ours)),
    )


def _papers(model: ModelConfig) -> bool:
    """Whether it is a model of the paper's, and not one of that name with other sizes."""
    return model.name in MODELS and replace(conf.model(model.name), dropout=model.dropout) == model
