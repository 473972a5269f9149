"""Answers of the page for an RL config: its step under the page's settings."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from predict import estimate, rl_step
from predict.config.document import Document
from predict.config.draft import read_draft
from predict.config.load import read_sections
from predict.explorer.answers import REPLICAS, TOP, Explorer, Settings, as_options
from predict.explorer.page import Control, controls, section_controls
from predict.plan_search.answer import RankedPrediction
from predict.plan_search.options import SearchOptions
from predict.plan_search.rl import KIND
from predict.plan_search.whole_search import search_combinations
from predict.reports.page.content import page_content, search_facts, with_front
from predict.reports.page.rl import LIVE, rl_answer_view
from predict.rl.config import document_of, load_rl, training_document
from predict.rl.section import COLOCATED, NAME
from predict.rl.step import RlStep
from predict.serialise import picked
from sampling.errors import UserError

SPLIT = (f"{NAME}.placement", f"{NAME}.rollout.gpus", f"{NAME}.rollout.tp")
"""Keys that a search from the page opens."""
FOLLOWS = (f"{NAME}.staleness", f"{NAME}.fetches", f"{NAME}.rollout.partial", REPLICAS)
"""Keys whose values belong to one placement."""


@dataclass(frozen=True)
class RlExplorer(Explorer):
    """An RL config and the answers to settings over it."""

    live: ClassVar[Sequence[str]] = LIVE
    has_studies: ClassVar[bool] = False

    @cached_property
    def controls(self) -> tuple[Control, ...]:
        """ConfigError where the config itself has faults."""
        run = load_rl(self.config, self.overrides)
        document, of_files = self._document(self.overrides)
        model = document.content.get("model")
        values = read_sections(read_draft(document, of_files)).values
        of_run = controls(model if isinstance(model, str) else "", values, ("plan", "cluster", "execution"))
        return (*of_run[:2], *section_controls(run.section, NAME), *of_run[2:])

    def _document(self, options: Sequence[str]) -> tuple[Document, list[str]]:
        """The trainer's part of the config under settings, and those for files that it names."""
        content, of_files, _ = document_of(self.config, options)
        return training_document(content, self.config), of_files

    def _replicas(self, options: Sequence[str]) -> int:
        dp: int = document_of(self.config, options)[0].get("plan", {}).get("dp", 0)
        return dp

    def _answer(self, settings: Settings) -> dict[str, Any]:
        options, follows = self._options(settings)
        return {"page": page_content([rl_answer_view(rl_step(self.config, options))]), "follows": follows}

    def _studies(self, settings: Settings) -> dict[str, Any]:
        raise UserError("an RL config has no heat map; `predict sweep` shows its throughput over other settings")

    def search(self, settings: Settings) -> dict[str, Any]:
        """The best placements, splits of the GPUs and engines for the run under the settings."""
        return self._guarded(settings, self._search)

    def _search(self, settings: Settings) -> dict[str, Any]:
        apart = load_rl(self.config, self._options(settings)[0]).section.placement != COLOCATED
        opened = (
            SPLIT[-1:] if apart else SPLIT
        )  # engines of their own have GPUs in addition to the cluster's, which are not split
        kept = {
            path: value for path, value in settings.items() if path not in opened and (apart or path not in FOLLOWS)
        }
        overrides = [*self._options(kept)[0], *(f"{path}=auto" for path in opened)]
        answer = search_combinations(KIND, self.config, overrides, SearchOptions(top=TOP), estimate)
        return {
            "plans": with_front([_row(place, one) for place, one in enumerate(answer.best, 1)]),
            "search": search_facts(answer) | {"objective": answer.meaning},
            "settings": [dict(each.settings) for each in answer.best],
        }

    def _written(self, settings: Settings) -> dict[str, Any]:
        options, _ = self._options(settings)
        load_rl(self.config, options)
        content, *_ = document_of(self.config, options)
        made = Document(name=self.config.stem, content=content, sources={"": str(self.config)})
        text = f"# {self.config.name} as explored; paths count from {self.config.parent}\n{made.as_yaml()}"
        return {"yaml": text, "set": as_options(options)}


def _row(place: int, one: RankedPrediction[RlStep]) -> dict[str, Any]:
    step, memory, actor = one.prediction, one.prediction.memory, one.prediction.phase("update_actor")
    settings = ", ".join(f"{path.rpartition('.')[2]} {value}" for path, value in one.settings.items())
    return (
        {"label": str(place), "settings": settings}
        | picked(step, "step_us=time tokens_per_second_per_gpu")
        | {"mfu": actor and actor.mfu["palm"].mfu, "bubble": step.actor.bubble_fraction, "communication": None}
        | {"memory_bytes": memory.worst.peak, "headroom_bytes": memory.capacity - memory.worst.peak}
        | {"verdict": memory.verdict, "gpus": step.rl.gpus, "own": place == 1}
    )
