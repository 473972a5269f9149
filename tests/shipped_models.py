"""The shipped models, and one of each form: those of a form differ in their sizes alone, which their cards hold."""

import json

from predict.huggingface.config_json import with_model_type
from sampling.files.places import CONFIGS
from tests.predict.workload.parallel_runs import spec

MODELS = CONFIGS / "models"
SHIPPED = sorted(path.stem for path in MODELS.glob("*.json"))
READ = {name: json.loads((MODELS / f"{name}.json").read_text()) for name in SHIPPED}
"""Name → config.json."""
FAMILIES = {name: with_model_type(config)["model_type"] for name, config in READ.items()}
FORMS = list({(FAMILIES[name], spec(name).tied, *dict.fromkeys(spec(name).kinds())): name for name in SHIPPED}.values())
"""One shipped model of each family, tied or not, and kinds of layers."""
