"""Answers of the page: a config under the page's settings, predicted; or why it cannot be, key by key."""

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

from predict import estimate, job, load, rl_step
from predict.config.document import Document
from predict.config.draft import read_draft
from predict.config.load import read_sections, replicas_that_follow
from predict.config.overrides import as_settings
from predict.config.replicas import DECIDE_DP
from predict.explorer.page import Control, controls, section_controls
from predict.plan_search.answer import RankedPrediction
from predict.plan_search.options import SearchOptions
from predict.plan_search.rl import KIND
from predict.plan_search.sensitivity import neighbours
from predict.plan_search.whole_search import search_combinations, search_plans
from predict.reports.page.content import (
    page_content,
    plans_of_answer,
    plans_of_neighbours,
    search_facts,
    studies,
    with_front,
)
from predict.reports.page.rl import LIVE, rl_answer_view
from predict.reports.page.run_view import answer_view
from predict.rl.config import document_of, load_rl, training_document
from predict.rl.section import COLOCATED, NAME
from predict.rl.step import RlStep
from predict.serialise import as_json, picked
from sampling.errors import UserError
from sampling.files.documents import read_yaml
from sampling.files.faults import shown
from sampling.files.machine_code import LONG, pays
from sampling.files.places import CONFIGS

ENDINGS = (".json", ".yml", ".yaml", ".csv")
"""Suffixes of files that a config may name."""
OF_LENGTHS = "file:"
"""Start of a distribution of lengths that a file holds, before its path."""


def foreign_files(settings: Mapping[str, Any], config: Path) -> dict[str, str]:
    """Key path → the problem of a value that is the path of a file outside the project."""
    roots = [each.resolve() for each in (Path.cwd(), config.parent, CONFIGS)]
    found = {}
    for path, value in settings.items():
        for text in _texts(value):
            if _is_path(text) and not any(_inside(base / text, roots) for base in (Path.cwd(), config.parent)):
                found[path] = f"{shown(text)} lies outside the project; name a shipped one, or a file below {roots[0]}"
    return found


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value.removeprefix(OF_LENGTHS)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _is_path(text: str) -> bool:
    return os.sep in text or ".." in text or text.lower().endswith(ENDINGS)


def _inside(path: Path, roots: list[Path]) -> bool:
    """Whether a path, its links followed, lies below one of the roots."""
    try:
        place = path.resolve()
    except OSError:
        return False
    return any(place.is_relative_to(root) for root in roots)


Settings = Mapping[str, Any]
"""Key path → value of the controls that were changed."""
REPLICAS = "plan.dp"
OPEN = ("plan=auto", "batch.micro=auto")
"""Settings of a search from the page: the whole plan."""
TOP = 10
"""Plans that a search shows."""


@dataclass(frozen=True)
class Explorer:
    """A config and the answers to settings over it. `overrides` are those it was opened with."""

    config: Path
    overrides: tuple[str, ...] = ()
    jobs: int | None = None
    """Processes of a search; None for one per core."""
    tokens: str | float | None = None
    """Tokens of the whole job that the page shows; None for none."""
    price: str | None = None
    live: ClassVar[Sequence[str]] = ("headline", "differences", "waterfall", "memory", "timeline", "job")
    """Sections of the page that follow each change."""
    has_studies: ClassVar[bool] = True
    """Whether there are neighbours and a heat map."""

    @cached_property
    def controls(self) -> tuple[Control, ...]:
        """ConfigError where the config itself has faults."""
        load(self.config, self.overrides)
        draft = read_draft(self.config, self.overrides)
        model = draft.document.get("model")
        sections = read_sections(draft)
        return controls(model if isinstance(model, str) else "", sections.values)

    def warm(self) -> None:
        """Bring in what later answers need, so that the first change is as fast as the others."""
        pays(LONG)

    def answer(self, settings: Settings) -> dict[str, Any]:
        """The view of the run under the settings and the settings that follow from them; or its faults by key."""
        begun = time.perf_counter()
        return self._guarded(settings, self._answer) | {"server_ms": 1e3 * (time.perf_counter() - begun)}

    def studies(self, settings: Settings) -> dict[str, Any]:
        """The heat map, the sensitivity and the neighbours of the run under the settings."""
        return self._guarded(settings, self._studies)

    def search(self, settings: Settings) -> dict[str, Any]:
        """The best plans for the run under the settings, whatever these say of the plan."""
        kept = {path: value for path, value in settings.items() if not path.startswith("plan.")}
        return self._guarded(kept, self._search)

    def written(self, settings: Settings) -> dict[str, Any]:
        """The config with the settings as a YAML file, and the settings as options of a command."""
        return self._guarded(settings, self._written)

    def _guarded(self, settings: Settings, work: Any) -> dict[str, Any]:
        if foreign := foreign_files(settings, self.config):
            return {"faults": foreign}
        try:
            made: dict[str, Any] = work(settings)
        except UserError as error:
            return {"faults": self._by_key(str(error))}
        return made

    def _by_key(self, message: str) -> dict[str, str]:
        """Key path, or "" for what belongs to none → the lines of an error that speak of it."""
        known = "|".join(re.escape(each.path) for each in sorted(self.controls, key=lambda each: -len(each.path)))
        found: dict[str, str] = {}
        for line in message.splitlines():
            found_key = re.search(rf"(?:^|: )({known}): (.*)", line)
            path, problem = (found_key[1], found_key[2]) if found_key else ("", line)
            found[path] = f"{found[path]}\n{problem}" if path in found else problem
        return found

    def _options(self, settings: Settings) -> tuple[list[str], dict[str, Any]]:
        """The settings as overrides, dp among them where other degrees decide it; and what follows from them."""
        options = [*self.overrides, *as_settings(settings)]
        if REPLICAS in settings or not any(path in DECIDE_DP for path in settings):
            return options, {}
        dp = self._replicas([each for each in options if not each.startswith(f"{REPLICAS}=")])
        follows = {REPLICAS: str(dp)} if dp else {}
        return [*options, *(f"{path}={value}" for path, value in follows.items())], follows

    def _replicas(self, options: Sequence[str]) -> int:
        """The dp that the other degrees leave; 0 where they do not divide the ranks."""
        return replicas_that_follow(self.config, options)

    def _answer(self, settings: Settings) -> dict[str, Any]:
        options, follows = self._options(settings)
        prediction = estimate(load(self.config, options), require_fit=False)
        view = answer_view(prediction)
        if self.tokens is not None:
            view["job"] = as_json(job(prediction, self.tokens, price=self.price))
        return {"page": page_content([view]), "follows": follows}

    def _studies(self, settings: Settings) -> dict[str, Any]:
        options, _ = self._options(settings)
        prediction = estimate(load(self.config, options), require_fit=False)
        near = neighbours(self.config, options, prediction.run, partial(estimate, require_fit=False))
        plans = plans_of_neighbours(prediction, near)
        return {"run": studies(self.config, options, prediction), "plans": plans}

    def _search(self, settings: Settings) -> dict[str, Any]:
        overrides = [*self.overrides, *as_settings(settings), *OPEN]
        answer = search_plans(self.config, overrides, SearchOptions(top=TOP, jobs=self.jobs), estimate)
        return {
            "plans": plans_of_answer(answer),
            "search": search_facts(answer),
            "settings": [dict(each.settings) for each in answer.plans],
        }

    def _written(self, settings: Settings) -> dict[str, Any]:
        options, _ = self._options(settings)
        load(self.config, options)
        draft = read_draft(self.config, [])
        content, _ = read_yaml(self.config)
        sections = {each.partition(".")[0] for each in settings}
        named = {
            name: draft.mapping(name)
            for name, value in (content or {}).items()
            if name in sections and isinstance(value, str)
        }
        inline = {name: value for name, value in named.items() if name == "cluster" and value}
        made = Document(name=self.config.stem, content={**(content or {}), **inline}, sources={"": str(self.config)})
        text = f"# {self.config.name} as explored; paths count from {self.config.parent}\n{made.with_settings(options).as_yaml()}"
        return {"yaml": text, "set": as_options(options)}

    def first_page(self) -> dict[str, Any]:
        """The start of the page: the controls, and the answer to the config as it is."""
        return {
            "config": self.config.stem,
            "controls": [asdict(each) for each in self.controls],
            "live": self.live,
            "studies": self.has_studies,
            **self.answer({}),
        }


def as_options(settings: Sequence[str]) -> str:
    """Settings as options of a command."""
    return " ".join(f"--set {_quoted(each)}" for each in settings)


def _quoted(setting: str) -> str:
    import shlex

    path, _, value = setting.partition("=")
    plain = value[1:-1] if re.fullmatch(r'"[\w./-]+"', value) else value
    return shlex.quote(f"{path}={plain}")


# Answers of the page for an RL config: its step under the page's settings.

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
