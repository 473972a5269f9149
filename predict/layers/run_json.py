"""A training run as plain data and back, to hand it to other processes and to keep it in files; a model's parts by their names."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from predict.layers.registry import fields_of_parts, mixers, parts, sizes_of
from predict.model.spec import ModelSpec
from predict.run.training_run import TrainingRun
from predict.serialise import rebuild

OF_PARTS = ("mixers", "mlp", "sparse")
FURTHER = "further"
"""A list that files of earlier versions have among the model's sizes; always empty there."""


def dump_run(run: TrainingRun) -> str:
    """The run as JSON, exactly: `load_run(dump_run(run)) == run`."""
    values = asdict(run) | {name: model_as_data(model) for name, model in _models(run).items()}
    del values["given"]  # how a config was written, not what the run is
    return json.dumps(values)


def _models(run: TrainingRun) -> dict[str, ModelSpec]:
    return {"model": run.model} | ({"teacher": run.teacher} if run.teacher else {})


def load_run(text: str) -> TrainingRun:
    values = json.loads(text)
    models = {name: model_of_data(values[name]) for name in ("model", "teacher") if values.get(name)}
    return rebuild(TrainingRun, values | models)


def model_as_data(model: ModelSpec) -> dict[str, Any]:
    """The fields of a model, and the sizes of its parts by the parts' names: None for mixers that it has not."""
    found = {name: value for name, value in asdict(model).items() if name not in OF_PARTS}
    if model.tower:
        found["tower"] = model_as_data(model.tower)
    found |= dict.fromkeys(mixer.NAME for mixer in mixers() if not mixer.IS_PLAIN)
    return found | {part.NAME: sizes_of(part) for part in (*model.mixers, model.sparse) if part and sizes_of(part)}


def model_of_data(values: Mapping[str, Any]) -> ModelSpec:
    """The model whose data these are."""
    stated = [of(**values[name]) for name, of in parts().items() if values.get(name)]
    fields = {name: value for name, value in values.items() if name not in (*parts(), FURTHER)}
    if fields.get("tower"):
        fields["tower"] = model_of_data(fields["tower"])
    return rebuild(ModelSpec, fields | fields_of_parts(stated))
