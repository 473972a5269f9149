"""A rule across keys: what a value must be, given the others. Each topic of this folder declares its own.

A rule names the key path it blames and takes the values it looks at. It runs when all of them are sound on their own, so a
fault in one place hides none elsewhere.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from predict.model.spec import ModelSpec
from predict.run.execution import WHOLE_LAYERS
from predict.run.lengths import PACKED
from predict.run.training_run import TrainingRun
from sampling.files.faults import Fault

Problems = Iterator[str]
SHORTEST = "shortest_tokens"
"""Name of the tokens of the shortest sequence, or of a packed row, among the values of rules: no key of a config."""
TEACHER_MODEL = "teacher_model"
"""Name of the teacher's model among the values of rules: no key of a config."""
OTHERS = "set execution.framework to megatron-core, or to another that is priced operator by operator"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A check over several values, which yields what is wrong with them: the value, the reason, the fix."""

    path: str
    """The key path that the problems are reported at."""
    reason: str
    """What is wrong where it is broken, in a reader's words: why a search leaves plans out."""
    needs: tuple[str, ...]
    """Names of the values: keys of the sections, fields of the model, and `model` for all of it."""
    check: Callable[..., Problems]
    of_each_model: bool = False
    """A teacher's model keeps it too."""

    @property
    def advised_by(self) -> tuple[str, ...]:
        """Names of further values, which only its advice looks at: its keyword parameters, each with a default for one that is not
        sound."""
        return tuple(getattr(self.check, "__kwdefaults__", None) or ())

    def broken(self, values: Mapping[str, Any]) -> Iterator[Fault]:
        """A fault for each way in which values break it; none where one that it needs is lacking."""
        if all(need in values for need in self.needs):
            advising = {name: values[name] for name in self.advised_by if name in values}
            for problem in self.check(*(values[need] for need in self.needs), **advising):
                yield Fault(path=self.path, problem=problem, needs=self.needs)


RULES: list[Rule] = []


def rule(
    path: str, reason: str, *needs: str, of_each_model: bool = False
) -> Callable[[Callable[..., Problems]], Callable[..., Problems]]:
    """Declare a rule that blames `path`. Its parameters are the names of the values it needs, unless `needs` names them."""

    def declare(check: Callable[..., Problems]) -> Callable[..., Problems]:
        parameters = check.__code__.co_varnames[: check.__code__.co_argcount]
        names = needs or tuple(name.rstrip("_") for name in parameters)
        RULES.append(Rule(path=path, reason=reason, needs=names, check=check, of_each_model=of_each_model))
        return check

    return declare


def not_in_plain_torch(framework: str, is_set: bool, what: str) -> Problems:
    """The problem of a setting that the framework `torch`, whose layers are timed in one piece, cannot run."""
    if framework == WHOLE_LAYERS and is_set:
        yield f"{what}, which execution.framework {WHOLE_LAYERS} does not model; {OTHERS}"


def values_of_model(model: ModelSpec) -> dict[str, Any]:
    """A model's values by the names under which rules ask for them."""
    return {field.name: getattr(model, field.name) for field in fields(model)} | {"model": model}


def values_of_run(run: TrainingRun) -> dict[str, Any]:
    """The values of a run by the names under which rules ask for them."""
    found = {**values_of_model(run.model), "precision": run.precision}
    if run.teacher:
        found[TEACHER_MODEL] = run.teacher
    for section in (run.plan, run.execution, run.vision, run.adapters):
        found |= {field.name: getattr(section, field.name) for field in fields(section)}
    batch, cluster = run.batch, run.cluster
    found |= {"global": batch.global_, "micro": batch.micro, "seq_len": batch.seq_len}
    found[SHORTEST] = batch.seq_len if batch.padding == PACKED else min(batch.seq_len, *run.sequences)
    return found | {"nodes": cluster.nodes, "gpus_per_node": cluster.gpus_per_node, "profile": cluster.profile}
