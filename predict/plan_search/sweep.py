"""Combinations of some keys' values of a config of any kind, each with its prediction or the reason why it cannot run."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from predict import estimate
from predict.config.choices import SUFFIXES, is_choice, values_of
from predict.config.document import Config, name_of, read_config, value_at
from predict.config.overrides import OPTION as SET
from predict.config.overrides import as_settings, parse_overrides
from predict.kinds import KINDS, EnumeratedKind, Kind, ServerOptions, Values, kind, kind_of
from predict.run.plan import AUTO
from predict.step.prediction import Prediction
from predict.step.scheduling import Estimate
from sampling.errors import Checks, ConfigError, InfeasibleError, UserError
from sampling.files.faults import did_you_mean, shown
from sampling.files.schema import Key
from sampling.progress import Progress, silent

# The keys of a config that vary, each with its values: those that `--vary` gives, or that a config leaves open.

OPTION = "--vary"
MOST_ROWS = 100_000
WITH_SUFFIX = re.compile(r"(\d+)([kKM])")


@dataclass(frozen=True, kw_only=True, slots=True)
class Varied:
    """One key and its values; none where the kind of config chooses them."""

    path: str
    values: tuple[Any, ...]


def parse_vary(texts: Sequence[str], of: Kind[Any, Any], option: str = OPTION) -> tuple[Varied, ...]:
    """The keys of `batch.seq_len=2k..128k` and `batch.micro=1,2,4`. UserError, with a line for each text that is wrong: one that is not
    KEY=VALUES, an unknown key or an empty range; and for a key given twice, or more than MOST_ROWS rows."""
    varied: list[Varied] = []
    with Checks() as checks:
        for text in texts:
            with checks.one():
                varied.append(_varied(text, of, option))
    if twice := [path for path, times in Counter(each.path for each in varied).items() if times > 1]:
        raise UserError(f"{OPTION}: {', '.join(twice)} is given twice; give all its values at once")
    rows = math.prod(len(each.values) or 1 for each in varied)
    if rows > MOST_ROWS:
        raise UserError(
            with_option(option, f"{rows:,} combinations are more than {MOST_ROWS:,}; vary fewer values at once")
        )
    return tuple(varied)


def _varied(text: str, of: Kind[Any, Any], option: str) -> Varied:
    settings, faults = parse_overrides([text])
    if faults or not settings:
        raise UserError(f"{OPTION}: {shown(text)} is not KEY=VALUES; write for example batch.micro=1,2,4")
    path, written = of.resolved(settings[0].path), settings[0].value
    key = of.key(path)
    if key is None:
        raise _unknown_key(path, of)
    if written == AUTO and of.can_be_auto:
        _require_automatic([path], of)
        return Varied(path=path, values=())
    return Varied(path=path, values=_values(path, written, key, option))


def _require_automatic(paths: Sequence[str], of: Kind[Any, Any]) -> None:
    if wrong := [path for path in paths if path not in of.can_be_auto]:
        raise UserError(
            f"{', '.join(wrong)}: auto is for {', '.join(of.can_be_auto)}; give values, as in [1, 2] or 1..8"
        )


def with_option(option: str, problem: str) -> str:
    """A problem after the option that it is a fault of; alone where there is none, as in a search, whose values a config may give."""
    return f"{option}: {problem}" if option else problem


def combinations(varied: Sequence[Varied]) -> Iterator[Values]:
    """Key path → value of each combination; the last key changes fastest."""
    for values in itertools.product(*(each.values for each in varied)):
        yield dict(zip((each.path for each in varied), values, strict=True))


def _unknown_key(path: str, of: Kind[Any, Any]) -> UserError:
    """The error for a key that does not vary, with the nearest that does."""
    section, _, name = path.partition(".")
    homes = [each for each in of.paths() if each.partition(".")[2] == (name or section)]
    near = f"; did you mean {shown(homes[0])}?" if homes else did_you_mean(path, of.paths())
    title = KINDS[of.name].title
    return UserError(
        f"{OPTION}: {shown(path)} is not a key of {title}{near or '; docs/reference/config.md lists them'}"
    )


def opened(of: EnumeratedKind[Any, Any], config: Any, overrides: Sequence[str]) -> tuple[tuple[Varied, ...], list[str]]:
    """The keys that a config and its settings leave open, as lists, ranges or `auto`, and the other settings."""
    content = of.content(config, overrides)
    choices = {path: value for path in of.paths() if is_choice(value := value_at(content, path))}
    _require_automatic([path for path, value in choices.items() if value == AUTO], of)
    others = [text for text in overrides if not _opens(text, of)]
    choices = choices or of.opened(others)
    return parse_vary(as_settings(choices), of, option=""), others


def _opens(text: str, of: Kind[Any, Any]) -> bool:
    """Whether a setting leaves its key open."""
    settings, faults = parse_overrides([text])
    return not faults and is_choice(settings[0].value) and of.resolved(settings[0].path) in of.paths()


def _values(path: str, written: Any, key: Key, option: str) -> tuple[Any, ...]:
    if isinstance(written, str) and not (is_choice(written) and ".." in written):
        listed = key.kind == "string" and key.pattern and "," in written and not written.startswith("[")
        if listed and not key.malformed(written):  # a text that is a list by itself, such as a layout
            return (written,)
        written = [_value(part.strip(), key) for part in written.split(",") if part.strip()]
    elif not isinstance(written, list | str):
        written = [] if written is None else [written]
    return values_of(f"{option} {path}".strip(), written, key)


def _value(text: str, key: Key) -> Any:
    """One value of a list, as YAML has it, or a size such as 4k."""
    if found := WITH_SUFFIX.fullmatch(text):
        return int(found[1]) * SUFFIXES[found[2]]
    value = parse_overrides([f"a.b={text}"])[0][0].value
    return text if key.kind == "string" and not isinstance(value, str) else value


# Every combination of their values, predicted.

Predicted = TypeVar("Predicted")


@dataclass(frozen=True, kw_only=True, slots=True)
class SweptRow(Generic[Predicted]):
    """One combination."""

    settings: Values
    """Key path → the value that it has here; of the keys that vary first, and then of those that follow from them."""
    prediction: Predicted | None
    reason: str = ""
    """The reason why there is no prediction, or why it cannot be chosen."""
    fits: bool = True
    """Whether the reason is not one of memory, or of another limit of the machines."""

    @property
    def chosen(self) -> Predicted | None:
        """The prediction of a combination that can run and fits."""
        return None if self.reason else self.prediction


@dataclass(frozen=True, kw_only=True, slots=True)
class SweptRows(Generic[Predicted]):
    """The combinations in their order, the last key changing fastest, or by an objective the best first."""

    kind: Kind[Any, Predicted]
    name: str
    varied: tuple[Varied, ...]
    rows: tuple[SweptRow[Predicted], ...]

    @property
    def best(self) -> tuple[SweptRow[Predicted], ...]:
        """The combinations that can be chosen."""
        return tuple(row for row in self.rows if row.chosen)

    @property
    def left_out(self) -> tuple[SweptRow[Predicted], ...]:
        return tuple(row for row in self.rows if not row.chosen)

    @property
    def predictions(self) -> tuple[Predicted, ...]:
        return tuple(row.prediction for row in self.rows if row.prediction is not None)

    def ordered(self, objective: str) -> SweptRows[Predicted]:
        """The same with the best first, then those that are OOM, and then those that cannot be chosen."""
        value, verdict = self.kind.orders[objective].value, self.kind.verdict

        def worth(row: SweptRow[Any]) -> tuple[bool, float]:
            predicted: Any = row.prediction
            return verdict(predicted) == "OOM", value(predicted)

        return replace(self, rows=(*sorted(self.best, key=worth), *self.left_out))


SweptRun = SweptRow[Prediction]
Sweep = SweptRows[Prediction]


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepSpace(Generic[Predicted]):
    """A config, the keys of it that vary, and what predicts each combination of their values."""

    kind: Kind[Any, Predicted]
    config: Config
    overrides: Sequence[str]
    varied: tuple[Varied, ...]
    predict: Callable[[Any], Predicted]
    option: str = OPTION
    """The option that errors name for a key that varies; '' for none."""

    def rows(self, progress: Progress = silent) -> SweptRows[Predicted]:
        """Every combination predicted. ConfigError, with the reason of the first, where none can run; InfeasibleError where that is the
        reason of each."""
        varied, settings = self._combinations()
        rows: list[SweptRow[Predicted]] = []
        for each in settings:
            rows.append(swept_row(self.kind, each, self._predicted, self.option))
            progress(len(rows), len(settings), "")
        if all(row.prediction is None for row in rows):
            raise none_can_run(rows, self.option)
        return SweptRows(kind=self.kind, name=name_of(self.config), varied=varied, rows=tuple(rows))

    def _predicted(self, settings: Values) -> Predicted:
        return self.predict(self.kind.load(self.config, [*self.overrides, *as_settings(settings)]))

    def _combinations(self) -> tuple[tuple[Varied, ...], list[Values]]:
        """The keys with their values, those included that the kind chooses, and the settings of each combination."""
        varied, automatic = self.varied, [each.path for each in self.varied if not each.values]
        given = {each.path: each.values for each in varied if each.values}
        if automatic:
            chosen = self.kind.automatic(self.config, self.overrides, given, automatic)
            varied = tuple(each if each.values else replace(each, values=chosen[each.path]) for each in varied)
            given = {each.path: each.values for each in varied}
        complete = self.kind.completing(self.config, self.overrides, given, automatic)
        return varied, [settings for values in combinations(varied) if (settings := complete(values)) is not None]


def swept_row(
    of: Kind[Any, Predicted], settings: Values, predict: Callable[[Values], Predicted], option: str = OPTION
) -> SweptRow[Predicted]:
    """One combination, predicted, or with the reason why it is not; errors name `option`, and not --set, before the keys that vary."""
    try:
        prediction = predict(settings)
    except (ConfigError, InfeasibleError) as error:
        reason = str(error)
        for path in settings:
            reason = reason.replace(f"{SET}: {path}", with_option(option, path))
            reason = reason.replace(f"{SET} {path}=", f"{option} {path}=".strip())
        return SweptRow(settings=settings, prediction=None, reason=reason, fits=not isinstance(error, InfeasibleError))
    misfit = of.misfit(prediction)
    return SweptRow(settings=settings, prediction=prediction, reason=misfit, fits=not misfit)


def none_can_run(rows: Sequence[SweptRow[Any]], option: str) -> UserError:
    """The error of combinations of which none can run: the fault of the config where that is of none of the keys that vary."""
    (reason, *others), fits = {row.reason: None for row in rows}, all(row.fits for row in rows)
    if fits and not others and not any(path in reason for path in rows[0].settings):
        return ConfigError(reason)
    first = ", ".join(f"{path}={value}" for path, value in rows[0].settings.items())
    which = "the only combination" if len(rows) == 1 else f"none of {len(rows):,} combinations can run; the first"
    kind_of_error = ConfigError if any(row.fits for row in rows) else InfeasibleError
    return kind_of_error(with_option(option, f"{which}, {first}, cannot run:\n{rows[0].reason}"))


def swept_space(
    config: Config,
    vary: Sequence[str],
    overrides: Sequence[str],
    estimate: Estimate,
    of_servers: ServerOptions | None = None,
) -> SweepSpace[Any]:
    """The space of a config under every combination of `vary`. ConfigError for a file that is no config; UserError with every fault of
    the rest, and of the questions on servers."""
    if isinstance(config, str | Path):
        read_config(config)  # its sections decide which keys there are to vary
    of, predict = kind(kind_of(config)), estimate
    varied: tuple[Varied, ...] = ()
    with Checks() as checks:
        with checks.one():
            varied = parse_vary(vary, of)
        with checks.one():
            predict = of.predictor(estimate, of_servers or ServerOptions())
    return SweepSpace(kind=of, config=config, overrides=overrides, varied=varied, predict=predict)


def opened_space(
    of: EnumeratedKind[Any, Any],
    config: Config,
    overrides: Sequence[str],
    estimate: Estimate,
    of_servers: ServerOptions | None = None,
) -> SweepSpace[Any]:
    """The space of all that a config leaves open. UserError with every fault."""
    others, predict = overrides, estimate
    varied: tuple[Varied, ...] = ()
    with Checks() as checks:
        with checks.one():
            predict = of.predictor(estimate, of_servers or ServerOptions())
        with checks.one():
            varied, others = opened(of, config, overrides)
    return SweepSpace(kind=of, config=config, overrides=others, varied=varied, predict=predict, option="")


def sweep(
    config: Config,
    vary: Sequence[str],
    overrides: Sequence[str] = (),
    *,
    slo: Sequence[str] = (),
    price: str | None = None,
    model: str = "",
    coefficients: Path | str | None = None,
    progress: Progress = silent,
) -> SweptRows[Any]:
    """Predict a config of any kind under every combination of keys such as `batch.seq_len=2k..128k` and `batch.micro=1,2,4`.

    A combination that cannot run keeps its reason. dp takes the ranks that are left where the other degrees vary and it does not. `slo`,
    `price`, `model` and `coefficients` are of servers, as in `serving_answer`. `progress` is called as `sampling.progress.Progress` says.
    UserError for an unknown key or an empty range; ConfigError, with the reason of the first, where no combination can run.
    """
    of_servers = ServerOptions(slo=slo, price=price, model=model, coefficients=coefficients)
    return swept_space(config, vary, overrides, estimate, of_servers).rows(progress)


def default_objective(of: Kind[Any, Any], price: str | None) -> str:
    """The first objective of a kind, money only with a price."""
    return next(name for name, order in of.orders.items() if price or not order.needs_price)


def require_objective(of: Kind[Any, Any], name: str | None, price: str | None) -> None:
    """UserError for an objective that the kind does not have, and for money without a price."""
    if not name:
        return
    if name not in of.orders:
        near = did_you_mean(name, of.orders) or f"; give one of {', '.join(of.orders)}"
        raise UserError(f"--objective: {shown(name)} does not order {KINDS[of.name].plural}{near}")
    if of.orders[name].needs_price and not price:
        other = default_objective(of, price)
        raise UserError(
            f"--objective: {name} needs a price; give --price too, as in --price 2.5/gpu-h, or take {other}"
        )
