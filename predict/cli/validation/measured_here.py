"""`predict validate CONFIG`, `this-machine`, `this-gpu` and `samples`: what is measured on this machine, or was brought to it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from predict.cli.options import check_fit, log, print_json
from sampling.errors import UserError
from sampling.store.profiles import OWN

GPU = "this-gpu"


def runs(options: argparse.Namespace) -> None:
    here = options.what[0] if options.what in ([OWN], [GPU]) else ""
    overrides = _overrides(options, here=here)
    from predict.report.measured.validation import validation_text
    from predict.report.memory import misfit
    from predict.report.text import show
    from predict.validate.kept_figures import keep, kept_file, named_profiles
    from predict.validate.measured_runs import ValidatedRun, notes_on, predictions_of, validate
    from predict.validate.session_steps import against_sessions, steps_of_sessions
    from predict.validate.this_gpu import runs_of_this_gpu, settings_of_this_gpu
    from predict.validate.this_machine import runs_of_this_machine
    from predict.validate.validation_rows import validation_json

    profiles = named_profiles(overrides)
    steps = steps_of_sessions(profiles[-1]) if here == GPU and profiles else None
    kept = kept_file(overrides, here=here, on_gpu=here == GPU, steps=steps) if options.keep else None
    named = (ValidatedRun(config=Path(name), implementation="torch") for name in options.what)
    runs = {OWN: runs_of_this_machine, GPU: runs_of_this_gpu}[here]() if here else list(named)
    if here == GPU:
        overrides = [*settings_of_this_gpu(steps), *overrides]
    predicted = predictions_of(runs, overrides)
    notes, misfits = notes_on(predicted), [misfit(each.memory) for each in predicted]
    check_fit(options, misfits)
    if steps:
        found = against_sessions(runs, predicted, steps, tell=log)
    else:
        found = validate(runs, predicted, rounds=options.rounds or (1 if here == GPU else 3), tell=log)
    if kept:
        keep(kept, found.rows, of=len(runs), tell=log)
    elif here:
        log("the figures are not kept; --keep makes them the error of the profile")
    if options.json:
        print_json(validation_json(found.rows) | {"notes": notes})
    else:
        show(validation_text(found.rows, notes, misfits))
    if found.failed:
        raise UserError(
            f"{len(found.failed)} of {len(runs)} runs failed and have no row: {', '.join(found.failed)}; mend what is told above, "
            "and the same command measures them alone"
        )


def _overrides(options: argparse.Namespace, *, here: str) -> list[str]:
    """The settings, --profile among them, which names the profile that the runs of this machine are predicted from."""
    if options.profile and not here:
        raise UserError(f"--profile: goes with {OWN}, {GPU} and published; for a config, give --set cluster.profile=…")
    from predict.validate.kept_figures import PROFILE_KEY

    return [*options.overrides, *([PROFILE_KEY + options.profile] if options.profile else [])]


def samples(options: argparse.Namespace) -> None:
    from regressors.accuracy.benchmark import benchmark, lost_tables
    from regressors.accuracy.report import as_markdown, as_text
    from sampling.files.disk import MAKE_WRITABLE, require_place, write_atomically
    from sampling.files.places import benchmarks, own_data

    kept = benchmarks() / "accuracy.json"
    require_place(kept, MAKE_WRITABLE)
    content = benchmark(own_data() / "samples", options.measurements)
    if lost := lost_tables(content, kept):
        log(
            f"not kept: {kept} has tables that this result lacks: {lost}; give all with --measurements, or remove the file"
        )
    else:
        write_atomically(kept, json.dumps(content, indent=1).encode())
        write_atomically(kept.with_suffix(".md"), as_markdown(content).encode())
    if options.json:
        print_json(content)
        return
    from predict.report.text import show

    show(as_text(content))
