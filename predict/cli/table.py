"""The commands of `predict`: `predict --help` needs no more than this table, and a command no other command's module."""

from typing import NamedTuple

from predict.kinds import RL, SERVING, TRAINING

ALL_KINDS = (TRAINING, SERVING, RL)


class Command(NamedTuple):
    """One command. Its module has `add_options(parser)`, `run(options)`, EXAMPLES and, where a line does not do, DESCRIPTION."""

    name: str
    purpose: str
    """What it does, in a line of `predict --help`."""
    kinds: tuple[str, ...] = ()
    """Kinds of config that it takes; it refuses the others. Empty where it takes no config."""
    public: str = ""
    """Its function in `predict`, where that is not named as the command is."""

    @property
    def help(self) -> str:
        """Its line of `predict --help`, with the kinds of config that it takes unless it takes training configs alone."""
        return f"{self.purpose} ({', '.join(self.kinds)})" if {*self.kinds} - {TRAINING} else self.purpose

    @property
    def module(self) -> str:
        return f"predict.cli.{self.name.replace('-', '_')}"

    @property
    def function(self) -> str:
        """Name of its public function, `predict.<function>`."""
        return self.public or self.name.replace("-", "_")


COMMANDS = (
    Command("one-batch", "how long one training step takes, and why", (TRAINING,)),
    Command("ledger", "every quantity behind a step, in five books", (TRAINING, RL), public="step_ledger"),
    Command("speed-of-light", "the least time that a device leaves a step or a module", (TRAINING,)),
    Command("search", "which plan is the best, of all that a config leaves open", ALL_KINDS),
    Command("schedule", "time and compare pipeline schedules", (TRAINING,)),
    Command("memory", "predict whether a run fits, and its peak memory", (TRAINING, RL), public="one_batch_memory"),
    Command("sweep", "predict a config under every combination of some values", ALL_KINDS),
    Command("compare", "show the difference of runs, term by term", ALL_KINDS),
    Command("sensitivity", "rank what better figures and settings would bring", ALL_KINDS),
    Command("days", "days, GPU-hours, money and energy of a whole training", (TRAINING,)),
    Command("job", "a whole training's calendar time and cost, with saves and failures", (TRAINING,)),
    Command("report", "plans as one page with pictures and tables", (TRAINING, RL)),
    Command("plot", "one picture of a plan, as a file", (TRAINING, RL)),
    Command("explore", "a page on which every key of a config is a control", (TRAINING, RL)),
    Command("trace", "the predicted step as a trace for other tools", (TRAINING,)),
    Command("export", "write a run's launch arguments for another tool", (TRAINING,), public="launch_arguments"),
    Command("import-config", "read another tool's files of a run, or its log or trace"),
    Command("calls", "write the calls that runs need, for `python -m sampling --calls`", ALL_KINDS),
    Command("measure", "run the step, or serve the load, for real on this machine and time it", ALL_KINDS),
    Command("benchmark", "time the run's whole layers on a few GPUs of this machine", (TRAINING,)),
    Command("serving", "predict the latencies of a server under a load", (SERVING,), public="serving_answer"),
    Command("serving-step", "predict one step of a serving engine", (SERVING,)),
    Command("serving-fit", "fit a step model to measured serving runs", (SERVING,)),
    Command("rl-step", "predict one step of reinforcement learning", (RL,)),
    Command("calibrate", "fit a few bounded terms to measured runs of a cluster", (TRAINING,)),
    Command("diagnose", "is this run normal, and which changes help most: from a script, a log, a trace", (TRAINING,)),
    Command("explain", "compare a prediction with a profile of the run, and say what differs", (TRAINING,)),
    Command("what-if", "replay a traced step under another plan, or with a faster kernel or link", (TRAINING,)),
    Command("record", "keep a measured run of a cluster", (TRAINING,)),
    Command("history", "error over time and drift of recorded runs"),
    Command("validate", "compare predictions with measured steps", ALL_KINDS),
    Command("schema", "print the JSON Schema of a config, or of a truth table"),
    Command("doctor", "what is installed, which rows there are, what is stale"),
)
