"""Files as sources: a mapping, a Python call, or the commands of a script with what their launchers say."""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from predict.convert.megatron_script import read_mapping
from predict.convert.shell import FORCE_TORCHRUN, LAUNCH_BLOCKING, NODES, PROCESSES, VISIBLE_DEVICES, Script, read_shell
from predict.convert.shell_words import arguments_in
from predict.convert.tool import Source, flat
from predict.convert.tools import tool_of, tools
from sampling.errors import ConfigError
from sampling.files import disk as regular
from sampling.files.documents import NotYamlError, parse_yaml, read_json, read_yaml

YAML, JSON, TOML, PYTHON = (".yml", ".yaml"), ".json", ".toml", ".py"
MOST_STRAY = 3
"""Arguments outside of commands that an error names."""
MOST_BYTES = 1_000_000
"""Largest script or TOML file that is read; people write them."""


class NotReadableError(ConfigError):
    """A file that cannot be read, with the reason."""


def document_of(path: Path) -> Mapping[Any, Any] | None:
    """The mapping of a YAML, JSON or TOML file; None for a script."""
    kind = path.suffix.lower()
    if kind in (*YAML, JSON):
        document, faults = (read_json if kind == JSON else read_yaml)(path)
        if document is None:
            raise NotReadableError("; ".join(fault.problem for fault in faults))
        return document
    if kind != TOML:
        return None
    try:
        return tomllib.loads(text_of(path))
    except tomllib.TOMLDecodeError as error:
        raise NotReadableError(f"not valid TOML: {error}; mend the syntax") from None


def text_of(path: Path) -> str:
    try:
        return regular.read_text(path, most_bytes=MOST_BYTES)
    except regular.NotReadError as error:
        raise NotReadableError(str(error)) from None


def source_of_document(document: Mapping[Any, Any], name: str) -> Source:
    """The document by dotted paths, or where no tool has such, flat by the names of its leaves, as Megatron-LM's YAML is read."""
    by_path = Source(values=flat(document), name=name)
    by_name = Source(values=read_mapping(document), name=name)
    found = tool_of(by_path)
    return by_name if tool_of(by_name) and (found is None or found.in_any_section) else by_path


def sources_of_text(text: str, name: str, *, is_python: bool = False) -> list[Source]:
    """The sources in a script, and in the files that its here-documents write."""
    if is_python:
        return list(_calls(text, name))
    script = read_shell(text)
    assumed = frozenset(_plain_name(word) for word in script.assumed)
    found = [
        replace(_under(environment, source, words), assumed=assumed)
        for words, environment in zip(script.commands, script.environments, strict=True)
        for source in _of_command(words, name)
    ]
    _require_joined(found)
    if not any(tool_of(source) for source in found):
        found += _of_variables(script, name)
    for file, content in script.files.items():
        if (document := _parsed(file, content)) is not None:
            found.append(replace(source_of_document(document, Path(file).name), file=file))
    return [source for source in found if tool_of(source) or _has_options(source)]


def _plain_name(word: str) -> str:
    return word.lstrip("-").partition("=")[0].replace("-", "_")


def _require_joined(found: Sequence[Source]) -> None:
    """NotReadableError for arguments on a line of their own behind a command, which bash gives to no program."""
    programs = [source for source in found if tool_of(source) and source.program]
    stray = [name for source in found if not source.program for name in source.values]
    if programs and stray:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in stray[:MOST_STRAY])
        problem = f"no command has {named}, since the line before ends without \\ or is a comment; join the lines"
        raise NotReadableError(problem)


def _has_options(source: Source) -> bool:
    """Whether a command of a script that no tool is known by has options that decide the run, as far as one sees."""
    return bool(source.program and source.values) and (source.launched or CONFIG in source.values)


def _under(environment: Mapping[str, Any], source: Source, words: Sequence[str]) -> Source:
    """A source with what the environment of its command decides; accelerate counts its processes by itself."""
    of_environment = _of_torchrun(environment) if source.program.startswith("llamafactory-cli") else {}
    devices = str(environment.get(VISIBLE_DEVICES, ""))
    counts = LISTED.fullmatch(devices) and not any(word.endswith("accelerate") for word in words)
    return replace(
        source,
        cluster={**of_environment, **source.cluster},
        synchronous=environment.get(LAUNCH_BLOCKING) == "1",
        visible=len(devices.split(",")) if counts else 0,
    )


def _of_torchrun(environment: Mapping[str, Any]) -> dict[str, int]:
    """Nodes and GPUs per node of the torchrun that LLaMA-Factory starts where it sees several devices, or is forced to."""
    forced = str(environment.get(FORCE_TORCHRUN, "")).lower() in ("true", "y", "1")
    if str(environment.get(VISIBLE_DEVICES, "")).isdecimal() and not forced:
        return {"nodes": 1, "gpus_per_node": 1}
    found = {"nodes": str(environment.get(NODES, "")), "gpus_per_node": str(environment.get(PROCESSES, ""))}
    return {key: int(number) for key, number in found.items() if number.isdecimal() and int(number)}


def _parsed(file: str, content: str) -> Mapping[Any, Any] | None:
    """The mapping that a here-document writes, where it is one."""
    try:
        document = tomllib.loads(content) if file.endswith(TOML) else parse_yaml(content)[0]
    except (tomllib.TOMLDecodeError, NotYamlError):
        return None
    return document if isinstance(document, Mapping) else None


def _of_variables(script: Script, name: str) -> list[Source]:
    """Arguments that a script sets and does not launch: a piece of one."""
    words: list[str] = []
    for value in script.variables.values():
        pieces = value.split() if isinstance(value, str) else value
        if any(piece.startswith("--") for piece in pieces):
            words += [word for piece in pieces for word in piece.split()]
    return [Source(values=_values(words), name=name, form="command")] if words else []


# Commands: wrappers, launchers, a program, and its arguments.

ACCELERATE = "accelerate launch"
CONFIG = "config"
"""Argument by which scripts of many tools take a file of further arguments; a first word that is a path of one is read as its value."""
LISTED = re.compile(r"\d+(,\d+)*")
"""Devices that are named one by one."""
BINARIES: Mapping[tuple[str, ...], int] = {
    ("vllm", "serve"): 1,
    ("sglang", "serve"): 0,
    ("llamafactory-cli", "train"): 1,
    ("axolotl", "train"): 1,
    ("axolotl.cli.train",): 1,
    ("trl", "sft"): 0,
    ("trl", "dpo"): 0,
    ("trl", "kto"): 0,
    ("trl", "reward"): 0,
    ("trl", "grpo"): 0,
    ("tune", "run"): 0,
}
"""Program and sub-command, or module → 1 where a word without a flag follows: a model, or a file."""
IMAGES: Mapping[str, str] = {
    "vllm-openai": "vllm.entrypoints.openai.api_server",
    "vllm-openai-rocm": "vllm.entrypoints.openai.api_server",
}
"""Container image → the program that it starts, to which what follows its name is given."""
IMAGE_VERSION = "image_version"
"""Name of the value that is the version of a container image."""
TAGGED = re.compile(r":v?(\d+(?:\.\d+)+)$")
LAUNCHERS: Mapping[str, str] = {
    "nnodes": "nodes",
    "num_nodes": "nodes",
    "num_machines": "nodes",
    "nproc_per_node": "gpus_per_node",
    "num_gpus": "gpus_per_node",
}
PRINTING = ("echo", "printf", "cat", "ls", "cp", "mkdir")
"""Programs that launch nothing, whose words may name one that does: `echo "not found: pretrain_gpt.py"`."""
OF_PROCESSES = ("torchrun", "deepspeed", "accelerate")
"""Programs that start a script on several processes."""
INTERPRETERS = ("python", *OF_PROCESSES)
OF_A_SCRIPT = re.compile(r"\$\{?\w*(PY|SCRIPT)\w*(?<!DIR)\}?$")
"""A variable that holds the name of a script, not of its folder."""
LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")


def _of_command(words: Sequence[str], name: str) -> Iterator[Source]:
    if "--" in words:  # ray job submit … -- python train.py
        words = words[words.index("--") + 1 :]
    if not words or words[0] in PRINTING:
        return
    if words[0].startswith("--"):
        yield Source(values=_values(words), name=name, form="command")
        return
    place, program = _program(words)
    if not program:
        return
    before, after = words[:place], words[place + 1 :]
    cluster = _cluster(before)
    if (at := _launch_of_accelerate(before)) >= 0:
        yield Source(values=arguments_in(before[at:]), name=name, program=ACCELERATE, form="command")
        cluster = {}
    elif program == "tune run":
        cluster = _cluster(after)
        recipe = next((word for word in after if "finetune" in word), "")
        yield Source(
            values=_values(after), name=name, program=f"tune run {recipe}".strip(), cluster=cluster, form="command"
        )
        return
    takes_word = BINARIES.get(tuple(program.split()), 0)
    values = _values(after, program=program)
    if takes_word and after and not after[0].startswith("-"):
        values = {"model_tag": after[0], **values}
    if program in IMAGES.values() and (tag := TAGGED.search(words[place])):
        values = {IMAGE_VERSION: tag[1], **values}
    launched = any(map(_starts_processes, before))
    source = Source(values=values, name=name, program=program, cluster=cluster, launched=launched, form="command")
    tool = tool_of(source)
    key = tool.arguments_file if tool else CONFIG
    if key and after and not after[0].startswith("-") and after[0].endswith((*YAML, JSON, TOML)):
        source = replace(source, values={key: after[0], **values})
    yield source


def _program(words: Sequence[str]) -> tuple[int, str]:
    """The place and name of the program whose arguments follow."""
    for place, word in enumerate(words):
        stem = word.rpartition("/")[2]
        if stem.partition(":")[0] in IMAGES:
            return place, IMAGES[stem.partition(":")[0]]
        pair = (stem, words[place + 1] if place + 1 < len(words) else "")
        if pair in BINARIES:
            return place + 1, " ".join(pair)
        starts = any(each.rpartition("/")[2].startswith(INTERPRETERS) for each in words[:place])
        if word == "-m" and starts and words[place + 1 : place + 2] and words[place + 1] not in LAUNCHER_MODULES:
            return place + 1, words[place + 1]
        if stem.endswith(PYTHON) or (OF_A_SCRIPT.match(word.upper()) and place):
            return place, stem
    return -1, ""


def _starts_processes(word: str) -> bool:
    return word in LAUNCHER_MODULES or word.rpartition("/")[2].startswith(OF_PROCESSES)


def _launch_of_accelerate(before: Sequence[str]) -> int:
    for place, word in enumerate(before):
        if word == "launch" and place and before[place - 1].endswith("accelerate"):
            return place + 1
        if word == LAUNCHER_MODULES[2]:
            return place + 1
    return -1


def _cluster(before: Sequence[str]) -> dict[str, int]:
    """Nodes and GPUs per node by the options of a launcher; what the environment decides is left out."""
    options = arguments_in(before)
    found = {own: int(options[name]) for name, own in LAUNCHERS.items() if str(options.get(name, "")).isdecimal()}
    if options.get("standalone") is True:
        found.setdefault("nodes", 1)
    found |= _included(str(options.get("include", options.get("i", ""))).strip("\"'"))
    return {key: number for key, number in found.items() if number > 0}


def _included(resources: str) -> dict[str, int]:
    """Nodes and GPUs per node of DeepSpeed's `--include host:0,1@other:0,1` (deepspeed, launcher/runner.py); nothing where they differ."""
    hosts = [host.partition(":")[2] for host in resources.split("@")]
    counts = {len(slots.split(",")) for slots in hosts if LISTED.fullmatch(slots)}
    if len(counts) != 1 or not all(map(LISTED.fullmatch, hosts)):
        return {}
    return {"nodes": len(hosts), "gpus_per_node": counts.pop()}


def _values(words: Sequence[str], *, program: str = "") -> dict[str, Any]:
    """The arguments, read with the switches of the tool that they are of."""
    source = Source(values=arguments_in(words), program=program, form="command")
    tool = tool_of(source)
    return arguments_in(words, tool.keys.switches) if tool else dict(source.values)


# The launch that TRL's commands make: `trl sft` hands accelerate the options that are not its trainer's, of its command and of its file
# (trl, cli/commands/training.py and accelerate_config.py).

OF_ACCELERATE = "accelerate_config"
"""Option that names a file of accelerate, or one of BUILT_IN."""
LAUNCH_OPTIONS = (
    OF_ACCELERATE,
    "num_processes",
    "num_machines",
    "machine_rank",
    "main_process_ip",
    "main_process_port",
    "mixed_precision",
)
IN_BF16: Mapping[str, Any] = {"mixed_precision": "bf16", "num_processes": 8}
BUILT_IN: Mapping[str, Mapping[str, Any]] = {
    **{f"zero{stage}": {"distributed_type": "DEEPSPEED", "zero_stage": stage, **IN_BF16} for stage in (1, 2, 3)},
    **{
        f"fsdp{version}": {"distributed_type": "FSDP", "fsdp_reshard_after_forward": reshards, **IN_BF16}
        for version, reshards in ((1, "FULL_SHARD"), (2, True))
    },
    # its number of processes differs by version
    "multi_gpu": {"distributed_type": "MULTI_GPU", "mixed_precision": "bf16"},
    "single_gpu": {"distributed_type": "NO", "mixed_precision": "bf16", "num_processes": 1},
}
"""Name of a configuration that TRL brings along → what decides time or memory in it (trl, accelerate_configs)."""


def with_launch(source: Source) -> list[Source]:
    """A command of TRL as its trainer and, where options say something of it, the launch by accelerate; any other source as it is."""
    options = {name: value for name, value in source.values.items() if name in LAUNCH_OPTIONS}
    if not source.program.startswith("trl ") or not options:
        return [source]
    named = options.pop(OF_ACCELERATE, None)
    of_file = BUILT_IN.get(str(named), {} if named is None else {"config_file": named})
    launch = replace(source, values={**of_file, **options}, program=ACCELERATE)
    return [
        launch,
        replace(source, values={name: source.values[name] for name in source.values if name not in LAUNCH_OPTIONS}),
    ]


# Python: the constants of a call of TrainingArguments or of one of TRL's configs.

CALLED = re.compile(r"(TrainingArguments|(SFT|DPO|KTO|ORPO|CPO|Reward|GRPO)Config)$")
ADAPTED = re.compile(r"LoraConfig$|get_peft_model$|BitsAndBytesConfig$")
OF_PEFT = {"r": "lora_r", "target_modules": "lora_target_modules", "use_dora": "use_dora"}
"""Argument of peft's LoraConfig → TRL's name of it."""
OF_OLDER_TRAINERS = ("max_seq_length", "packing")
"""Keywords that TRL's trainers took before its configs did."""
OF_BITSANDBYTES = {
    "load_in_4bit": "load_in_4bit",
    "load_in_8bit": "load_in_8bit",
    "bnb_4bit_quant_type": "bnb_4bit_quant_type",
    "bnb_4bit_use_double_quant": "use_bnb_nested_quant",
}
"""The same of transformers' BitsAndBytesConfig."""


def _calls(text: str, name: str) -> Iterator[Source]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotReadableError(f"not valid Python: {error}; mend the syntax") from None
    constants = _constants(tree)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    shared: dict[str, Any] = {}
    for call in calls:
        called = ast.unparse(call.func)
        if ADAPTED.search(called):
            of_base = called.endswith("BitsAndBytesConfig")
            shared |= {} if of_base else {"use_peft": True}
            own = _keywords(call, constants)
            of_lora = {
                key: key if key.startswith("lora_") else f"lora_{key}" for key in own if called.endswith("LoraConfig")
            }
            names = OF_BITSANDBYTES if of_base else {**of_lora, **OF_PEFT}
            shared |= {name: own[key] for key, name in names.items() if key in own}
        if called.endswith("from_pretrained") and "Tokenizer" not in called and call.args:
            shared["model_name_or_path"] = _constant(call.args[0], constants)
        for keyword in call.keywords:
            if called.endswith("from_pretrained") and keyword.arg in ("torch_dtype", "dtype", "attn_implementation"):
                shared[keyword.arg] = _constant(keyword.value, constants).rpartition(".")[2]
            if called.endswith("from_pretrained") and keyword.arg in OF_BITSANDBYTES:
                shared[OF_BITSANDBYTES[keyword.arg]] = _value(keyword.value, constants)
            if called.endswith("Trainer") and keyword.arg == "model" and isinstance(keyword.value, ast.Constant):
                shared["model_name_or_path"] = keyword.value.value
            if called.endswith("Trainer") and keyword.arg in OF_OLDER_TRAINERS:
                shared[keyword.arg] = _value(keyword.value, constants)
    later = _set_later(tree, constants)
    for call in calls:
        if found := CALLED.search(ast.unparse(call.func)):
            given = _keywords(call, constants) | later.get(call, {})
            yield Source(values=flat({**shared, **given}), name=name, program=found[0], form="python")


def _keywords(call: ast.Call, constants: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of a call; those of an unpacked mapping under its name with two stars, which nothing reads."""
    return {
        keyword.arg or f"**{ast.unparse(keyword.value)}": _value(keyword.value, constants) for keyword in call.keywords
    }


def _set_later(tree: ast.Module, constants: Mapping[str, Any]) -> dict[ast.Call, dict[str, Any]]:
    """Attributes that are set on what a call made: `args.bf16 = True`; a condition leaves the value to the run."""
    made = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    branches = [node for node in ast.walk(tree) if isinstance(node, ast.If | ast.For | ast.While | ast.Try)]
    in_branches = {inner for branch in branches for inner in ast.walk(branch)}
    found: dict[ast.Call, dict[str, Any]] = {}
    assigned = [(target, node) for node in ast.walk(tree) if isinstance(node, ast.Assign) for target in node.targets]
    for target, setting in assigned:
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id in made:
            is_sure = setting not in in_branches or made[target.value.id] in in_branches
            value = _value(setting.value, constants) if is_sure else f"${{{ast.unparse(target)}}}"
            found.setdefault(made[target.value.id], {})[target.attr] = value
    return found


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Names that are assigned one constant at the top level, and nothing elsewhere."""
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    stored = Counter(
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    return {name: value for name, value in constants.items() if stored[name] == 1}


def _value(node: ast.expr, constants: Mapping[str, Any]) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return _constant(node, constants)


def _constant(node: ast.expr, constants: Mapping[str, Any]) -> Any:
    """A constant, or the text of what is computed, with a dollar sign, so that it is asked for."""
    if isinstance(node, ast.Constant):
        return node.value
    text = ast.unparse(node)
    return constants.get(text, text if text.startswith("torch.") else f"${{{text}}}")


def known_tools() -> str:
    return ", ".join(sorted({tool.name for tool in tools() if not tool.unread}))
