"""The commands of a shell script with their words, as far as the script itself decides them: nothing is run.

Assignments (several on a line, arrays, `+=`), defaults, arithmetic, `if`, `case`, loops, functions and here-documents are followed. What
only the environment knows keeps its dollar sign, and so does a variable that two branches set differently where neither is sure. Arguments
that only one of them adds are kept, and listed in `Script.assumed`.
"""

import ast
import fnmatch
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from predict.convert.shell_words import (
    ASSIGNED,
    JOINT,
    OPENING,
    SEPARATORS,
    arms_of_case,
    arms_of_if,
    assigned_name,
    end_of_block,
    end_of_command,
    end_of_variable,
    is_function,
    is_redirection,
    parts_of_variable,
    quoted_parts,
    words_of,
    written_to,
)

LONGEST_VALUE = 20_000
"""Characters of a variable's value, beyond which it is left as it is written."""
MOST_COMMANDS = 5_000
DEEPEST = 12
"""Scripts inside scripts that are followed, and variables inside defaults."""
VISIBLE_DEVICES, LAUNCH_BLOCKING = "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING"
NODES, PROCESSES, FORCE_TORCHRUN = "NNODES", "NPROC_PER_NODE", "FORCE_TORCHRUN"
"""Those by which `llamafactory-cli train` starts torchrun (LLaMA-Factory, launcher.py)."""
WATCHED = (VISIBLE_DEVICES, LAUNCH_BLOCKING, NODES, PROCESSES, FORCE_TORCHRUN)
"""Variables of the environment that decide how a command runs."""
FUNCTION = re.compile(r"(?:function\s+)?([A-Za-z_][\w-]*)\s*\(\s*\)|function\s+([A-Za-z_][\w-]*)")
HERE = re.compile(r"(?<!<)<<(?!<)(-?)\s*(['\"]?)(\w+)\2")
PREFIXES = ("export", "local", "readonly", "declare", "typeset")
SBATCH = re.compile(r"^#SBATCH\s+(-{1,2}[\w-]+)[=\s]\s*(\S+)", re.M)
OF_SLURM: Mapping[str, tuple[str, ...]] = {
    "--nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "-N": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "--gpus-per-node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
    "--gres": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
    "--ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "--ntasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
    "-n": ("SLURM_NTASKS", "SLURM_NPROCS"),
}
"""Option of a batch script → the variables that Slurm sets by it."""
ARITHMETIC: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
RELATIONS: Mapping[type, Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
}
COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-gt": operator.gt,
    "-ge": operator.ge,
    "-lt": operator.lt,
    "-le": operator.le,
}
TESTS = ("[", "[[", "test", "true", "false", "!")
"""Commands that only say whether something holds."""
QUERIES = ("grep", "egrep", "pgrep", "which", "command", "type", "nvidia-smi")
"""Commands that people run to find something out; of any other, success is taken for granted."""
WRITES = re.compile(r"(\d?|&)(>>?|<)")
"""A redirection whose file is the word after it."""
FROM_HERE = re.compile(r"\$\(\s*cat\s+(<<here-document-\d+)\s*\)")
Value = str | list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """A script as far as it decides itself."""

    commands: tuple[tuple[str, ...], ...]
    """The words of each command, in the order in which they are reached."""
    environments: tuple[Mapping[str, Value], ...]
    """Of each command, those of WATCHED that its environment has: exported before it, or assigned in front of it."""
    files: Mapping[str, str]
    """Name → text of the files that here-documents write."""
    variables: Mapping[str, Value]
    assumed: frozenset[str]
    """Arguments that were kept though a condition adds them that the script alone does not decide."""


def read_shell(text: str) -> Script:
    """The commands of a script, and its variables at the end."""
    reader = _Reader()
    for option, value in SBATCH.findall(text):
        for name in OF_SLURM.get(option, ()):
            reader.variables[name] = value.rpartition(":")[2]
    reader.run(text)
    return Script(
        commands=tuple(reader.commands),
        environments=tuple(reader.environments),
        files=reader.files,
        variables=reader.variables,
        assumed=frozenset(reader.assumed),
    )


@dataclass(slots=True)
class _Reader:
    variables: dict[str, Value] = field(default_factory=dict)
    exported: frozenset[str] = frozenset()
    """Names of the variables that commands have in their environment."""
    commands: list[tuple[str, ...]] = field(default_factory=list)
    environments: list[Mapping[str, Value]] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    functions: dict[str, list[str]] = field(default_factory=dict)
    here: dict[str, str] = field(default_factory=dict)
    assumed: set[str] = field(default_factory=set)
    depth: int = 0

    def run(self, text: str) -> None:
        if self.depth < DEEPEST:
            self.depth += 1
            self._run(list(words_of(self._without_here_documents(text))))
            self.depth -= 1

    # Statements.

    def _run(self, words: list[str]) -> None:
        place = 0
        while place < len(words) and len(self.commands) < MOST_COMMANDS:
            word = words[place]
            if word in SEPARATORS or word in ("then", "do", "fi", "done", "esac", "}", "time"):
                place += 1
            elif word not in OPENING and is_function(words, place):
                place = self._define(words, place)
            else:
                place = self._list(words, place)

    def _list(self, words: list[str], place: int) -> int:
        """Run commands that && and || join, each where the outcome of those before it calls for it; the place after them."""
        outcome: bool | None = True
        joint = "&&"
        while True:
            end = end_of_command(words, place)
            if outcome is None:
                self._each_apart([words[place:end], []])
            elif outcome is (joint == "&&"):
                outcome = self._one(words[place:end])
            joint = words[end] if end < len(words) else ""
            if joint not in ("&&", "||"):
                return end
            place = end + 1
            while place < len(words) and words[place] == "\n":
                place += 1
            if place == len(words):
                return place

    def _one(self, words: list[str]) -> bool | None:
        """Run a command, a block or a group; whether it succeeds, None where the script alone does not decide it."""
        if not words:  # a script that is broken
            return None
        if words[0] in OPENING:
            self._block(words[0], words[1 : end_of_block(words, 0)])
        elif words[0] == "{":
            self._run(words[1:-1])
        elif words[0] in TESTS or words[0].startswith("(("):
            return self._test(words)
        else:
            self._command(words)
            return None if words[0] in QUERIES else True
        return True

    def _block(self, kind: str, inside: list[str]) -> None:
        if kind == "if":
            self._branches(arms_of_if(inside))
        elif kind == "case":
            self._case(inside)
        elif "do" in inside:
            self._loop(kind, inside[: inside.index("do")], inside[inside.index("do") + 1 :])

    def _branches(self, arms: list[tuple[list[str], list[str]]]) -> None:
        """Run the arm whose condition holds; where that is not decided, each, and forget what they set differently."""
        open_arms: list[list[str]] = []
        for condition, body in arms:
            holds = self._holds(condition) if condition else True
            if holds is False:
                continue
            if holds and not open_arms:
                self._run(body)
                return
            open_arms.append(body)
            if holds:
                break
        else:
            open_arms.append([])
        self._each_apart(open_arms)

    def _each_apart(self, bodies: list[list[str]]) -> None:
        before, results = self.variables, []
        for body in bodies:
            self.variables = {name: list(value) if isinstance(value, list) else value for name, value in before.items()}
            self._run(body)
            results.append(self.variables)
        merged: dict[str, Value] = {}
        for name in dict.fromkeys(name for result in results for name in result):
            values = [result.get(name) for result in results]
            if all(value == values[0] for value in values) and values[0] is not None:
                merged[name] = values[0]
            elif longest := _with_all_arguments(values):
                merged[name] = longest
                self.assumed |= _added(values)
        self.variables = merged

    def _case(self, inside: list[str]) -> None:
        subject = "".join(self._expand(inside[0])) if inside else ""
        arms = arms_of_case(inside[2:] if "in" in inside[:2] else inside)
        if "$" in subject:
            self._each_apart([body for _, body in arms] + [[]])
            return
        for patterns, body in arms:
            if any(fnmatch.fnmatchcase(subject, pattern.strip("\"'")) for pattern in patterns):
                self._run(body)
                return

    def _loop(self, kind: str, head: list[str], body: list[str]) -> None:
        head = [word for word in head if word not in (";", "\n")]
        if kind == "while" and (head[:1] == ["getopts"] or any(word.strip("\"'") in ("$#", "${#}") for word in head)):
            return  # a loop over the script's own arguments, of which it is given none
        if kind == "for" and len(head) > 1 and head[1] == "in":
            items = [item for word in head[2:] for item in self._expand(word)]
            if len(items) == 1:
                self.variables[head[0]] = items[0]
            else:
                self.variables.pop(head[0], None)
        self._run(body)

    def _define(self, words: list[str], place: int) -> int:
        """Keep a function's body; the place after it."""
        name = FUNCTION.match(" ".join(words[place : place + 2]))
        opening = next((at for at in range(place, len(words)) if words[at].endswith("{")), len(words))
        depth, end = 1, opening + 1
        while end < len(words) and depth:
            depth += (words[end] == "{") - (words[end] == "}")
            end += 1
        if name:
            self.functions[name[1] or name[2]] = words[opening + 1 : end - 1]
        return end

    def _command(self, words: list[str]) -> None:
        if words[0] in PREFIXES:
            self._declare(words)
            return
        assigned = list(takewhile(ASSIGNED.match, words))
        rest = words[len(assigned) :]
        read = [word for word, before in zip(rest, ["", *rest], strict=False) if not WRITES.fullmatch(before)]
        expanded = [each for word in read if not is_redirection(word) for each in self._expand(word)]
        names = {assigned_name(word) for word in assigned}
        before, exported = {name: self.variables[name] for name in names if name in self.variables}, self.exported
        for word in assigned:
            self._assign(word)
        if not expanded:
            return
        self.exported |= names
        self._run_command(rest, expanded)
        # what stands in front of a command is set for it alone
        self.exported -= names - exported
        self.variables = {name: value for name, value in self.variables.items() if name not in names} | before

    def _declare(self, words: list[str]) -> None:
        """Assign what `export` and its like do; only what is exported, or declared with -x, is in a command's environment."""
        while words and (words[0] in PREFIXES or words[0].startswith("-")):
            exports = words[0] in ("export", "-x")
            words = words[1:]
        if exports:
            self.exported |= {assigned_name(word) for word in words}
        for word in filter(ASSIGNED.match, words):
            self._assign(word)

    def _run_command(self, words: list[str], expanded: list[str]) -> None:
        if (body := self.functions.get(expanded[0])) is not None and self.depth < DEEPEST:
            self.depth += 1
            self._run(body)
            self.depth -= 1
        elif expanded[0] == "eval":
            self.run(" ".join(expanded[1:]))
        elif (inner := _inner_script(expanded)) is not None:
            self.run(inner)
        else:
            self._here_document(words, expanded)

    def _here_document(self, words: list[str], expanded: list[str]) -> None:
        """A command; the text that a here-document gives it is a script for a shell, else the file that it is written to."""
        body = next((self.here[word] for word in words if word in self.here), None)
        if body is None:
            self.commands.append(tuple(expanded))
            self.environments.append(
                {name: self.variables[name] for name in WATCHED if name in self.variables and name in self.exported}
            )
        elif expanded[0] in ("bash", "sh", "sbatch", "srun", "ssh"):
            self.run(body)
        elif expanded[0] == "read":
            self.variables[expanded[-1]] = "".join(self._text(body, DEEPEST))
        elif target := written_to(words):
            self.files["".join(self._expand(target)).rpartition("/")[2]] = "".join(self._text(body, DEEPEST))

    def _without_here_documents(self, text: str) -> str:
        """The text with a mark in place of each here-document."""
        lines, kept = iter(text.splitlines()), []
        for line in lines:
            found = None if line.lstrip().startswith("#") else HERE.search(line)
            if found is None:
                kept.append(line)
                continue
            body = []
            for inner in lines:
                if (inner.strip() if found[1] else inner) == found[3]:
                    break
                body.append(inner)
            mark = f"<<here-document-{len(self.here)}"
            self.here[mark] = "\n".join(body)
            kept.append(line[: found.start()] + mark + line[found.end() :])
        return "\n".join(kept)

    # Values.

    def _assign(self, word: str) -> None:
        found = ASSIGNED.match(word)
        assert found is not None
        name, place, adds, text = found[1], found[2], found[3], word[found.end() :]
        if place:
            self.variables.pop(name, None)
        elif text.startswith("("):
            items = [each for part in words_of(text[1:-1]) if part not in SEPARATORS for each in self._expand(part)]
            before = self.variables.get(name, [])
            self.variables[name] = [*([before] if isinstance(before, str) else before), *items] if adds else items
        else:
            value = " ".join(self._expand(text, splits=False))
            before = self.variables.get(name, "") if adds else ""
            self.variables[name] = [*before, value] if isinstance(before, list) else before + value
        if len("".join(self.variables.get(name, ""))) > LONGEST_VALUE:
            del self.variables[name]

    def _expand(self, word: str, *, splits: bool = True) -> list[str]:
        """The words that a word becomes, without its quotes."""
        words, open_ = [""], False
        for quotes, text in quoted_parts(word):
            if quotes == "'":
                words[-1] += text
                open_ = True
                continue
            inside = re.sub(r'\\(["$`\\])', r"\1", JOINT.sub(" ", text)) if quotes else text
            values = self._text(inside, DEEPEST)
            for number, value in enumerate(values):
                if number:
                    words.append("")
                pieces = value.split() if splits and not quotes and value != text else [value]
                if splits and not quotes and value != text and not pieces:
                    continue
                words[-1] += pieces[0]
                words += pieces[1:]
            open_ = open_ or bool(quotes and values)
        return words if open_ or words != [""] else []

    def _text(self, text: str, depth: int) -> list[str]:
        """A text with its variables replaced; several texts where it is an array."""
        values, place = [""], 0
        while place < len(text):
            if text[place] != "$" or depth <= 0:
                values[-1] += text[place]
                place += 1
                continue
            end = end_of_variable(text, place)
            found = self._variable(text[place:end], depth)
            values[-1] += found[0] if found else ""
            values += found[1:]
            place = end
        return values if values != [""] or not text.startswith("$") else []

    def _variable(self, written: str, depth: int) -> list[str]:
        if written in ("$@", "$*", "${@}", "${@:1}", "${@:2}"):
            return []
        if found := FROM_HERE.fullmatch(written):
            return ["".join(self._text(self.here[found[1]], depth - 1))]
        if written.startswith("$(("):
            number = self._number(written[3:-2])
            return [written if number is None else str(number)]
        name, index, change = parts_of_variable(written)
        value = self.variables.get(name)
        if index in ("@", "*"):
            return [value] if isinstance(value, str) else list(value or ())
        if isinstance(value, list):
            value = value[int(index)] if index.isdecimal() and int(index) < len(value) else value[0] if value else ""
        return self._changed(written, value, change, depth) if change else [written if value is None else value]

    def _changed(self, written: str, value: str | None, change: str, depth: int) -> list[str]:
        """The value of `${NAME:-default}` and its like."""
        if found := re.match(r":?([-=])", change):
            if value or (value is not None and not change.startswith(":")):
                return [value]
            usual = "".join(self._expand(change[found.end() :], splits=False)) if depth > 1 else ""
            if found[1] == "=":
                self.variables[parts_of_variable(written)[0]] = usual
            return [usual]
        if found := re.match(r":?\+", change):
            return ["".join(self._expand(change[found.end() :], splits=False))] if value else [""]
        if change.startswith(":?"):
            return [value or written]
        if value is not None and (found := re.match(r"(##?|%%?)(.*)", change, re.S)):
            return [_trimmed(value, found[1], found[2])]
        return [written]

    def _number(self, text: str, *, unset: str = "?") -> int | None:
        names = re.compile(r"\$\{(\w+):-(\w+)\}|\$?\{?([A-Za-z_]\w*)\}?")

        def value(found: re.Match[str]) -> str:
            known = self.variables.get(found[1] or found[3], found[2] or unset)
            return f"({known})" if isinstance(known, str) else "?"

        return _calculated(names.sub(value, text))

    # Conditions.

    def _holds(self, words: list[str]) -> bool | None:
        """Whether a condition holds; None where the script alone does not decide it. A variable that nothing sets is empty."""
        tests: list[bool | None] = []
        joint = "&&"
        current: list[str] = []
        for word in [*words, ";"]:
            if word not in ("&&", "||", ";", "\n") or (current[:1] == ["[["] and "]]" not in current and word != ";"):
                current.append(word)
                continue
            if current:
                tests.append(self._test(current))
                current = []
            joint = word if word in ("&&", "||") else joint
        if joint == "||":
            return True if True in tests else None if None in tests else False
        return False if False in tests else None if None in tests or not tests else True

    def _test(self, words: list[str]) -> bool | None:
        """The outcome of one test; None where the script alone does not decide it."""
        first = (self._expand(words[0]) if words[:1] and words[0].startswith("$") else words)[:1]
        joints = {"&&", "||"} & set(words)
        match first:
            case ["!"]:
                return _opposite(self._test(words[1:]))
            case ["true" | "false" as outcome]:
                return outcome == "true"
            case ["[["] if joints:
                parts = _apart(words[1:-1], joints)
                return None if len(joints) > 1 else self._holds([each for part in parts for each in part])
            case ["[" | "[[" | "test"]:
                return self._bracketed(words)
            case [arithmetic] if arithmetic.startswith("(("):
                number = self._number(" ".join(words).strip("()"), unset="0")
                return None if number is None else bool(number)
            case [command] if command not in QUERIES:  # it may be the launch itself
                self._command(words)
        return None

    def _bracketed(self, words: list[str]) -> bool | None:
        """The outcome of `[ … ]`, `[[ … ]]` or `test …`."""
        inside = [self._tested(word) for word in words[1:] if word not in ("]", "]]")]
        known = [each for each in inside if each is not None]
        if len(known) < len(inside):
            return None
        outcome = _outcome(known[known[:1] == ["!"] :], of_bash=words[0] == "[[")
        return _opposite(outcome) if known[:1] == ["!"] else outcome

    def _tested(self, word: str) -> str | None:
        """A word of a test: a variable that is not set is empty, and what a command would print is unknown."""
        text = "".join(self._expand(word, splits=False))
        if "$(" in text or "`" in text:
            return None
        return re.sub(r"\$\{?\w+[^}\s]*\}?", "", text)


def _opposite(outcome: bool | None) -> bool | None:
    return None if outcome is None else not outcome


def _apart(words: list[str], joints: set[str]) -> list[list[str]]:
    """The parts of `[[ A && B ]]` as tests of their own, with what joins them."""
    parts: list[list[str]] = [["[["]]
    for word in words:
        if word in joints:
            parts += [["]]", word], ["[["]]
        else:
            parts[-1].append(word)
    return [*parts, ["]]"]]


def _with_all_arguments(values: list[Value | None]) -> Value | None:
    """The longest value of several arms, where all are lists or texts of arguments, or it goes on where the others end."""
    lists = [value for value in values if isinstance(value, list)]
    if lists:
        return max(lists, key=len)
    texts = [value for value in values if isinstance(value, str) and value]
    longest = max(texts, key=len, default="")
    goes_on = all(longest.startswith(text) for text in texts)
    are_arguments = all(text.lstrip().startswith("--") for text in texts)
    return longest if "--" in longest and (goes_on or are_arguments) else None


def _added(values: list[Value | None]) -> set[str]:
    """Arguments that only some of several values have, or have with this value."""
    arguments = [_arguments(value) for value in values]
    shared = arguments[0].intersection(*arguments[1:])
    return {name for each in arguments for name, _ in each - shared}


def _arguments(value: Value | None) -> set[tuple[str, str]]:
    """Each argument with the word behind it, which is empty behind a switch."""
    words = value.split() if isinstance(value, str) else value or []
    behind = ["" if word.startswith("--") else word for word in [*words[1:], ""]]
    return {(word, then) for word, then in zip(words, behind, strict=False) if word.startswith("--")}


def _outcome(test: list[str], *, of_bash: bool) -> bool | None:
    """The outcome of a test; to `[[`, `of_bash`, an empty text is the number 0, and to `[` a mistake, which holds for nothing."""
    match test:
        case ["-z" | "-n" as how, value]:
            return bool(value) is (how == "-n")
        case [value] if not value.startswith("-"):
            return bool(value)
        case [left, "=" | "==" | "!=" as how, right]:
            return fnmatch.fnmatchcase(left, right) is (how != "!=")
        case [left, how, right] if how in COMPARED and not (left and right) and not of_bash:
            return False
        case [left, how, right] if how in COMPARED and _is_number(left or "0") and _is_number(right or "0"):
            return COMPARED[how](int(left or 0), int(right or 0))
    return None


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"-?\d+", text))


def _inner_script(words: list[str]) -> str | None:
    """The script that `bash -c` is given, whatever starts the shell."""
    for number, word in enumerate(words[:-2]):
        if word.rpartition("/")[2] in ("bash", "sh") and re.fullmatch(r"-\w*c", words[number + 1]):
            return words[number + 2]
    return None


def _trimmed(value: str, how: str, pattern: str) -> str:
    """The value without the shortest or longest beginning (#) or end (%) of a pattern."""
    places = range(len(value) + 1) if how in ("#", "%%") else range(len(value), -1, -1)
    for place in places:
        part = value[:place] if how.startswith("#") else value[place:]
        if fnmatch.fnmatchcase(part, pattern.strip("\"'")):
            return value[place:] if how.startswith("#") else value[:place]
    return value


def _calculated(text: str) -> int | None:
    """The value of arithmetic on whole numbers; None where something in it is unknown."""
    if len(text) > LONGEST_VALUE or "**" in text:
        return None
    try:
        return _value(ast.parse(text.replace("/", "//").strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner)
        case ast.BinOp(left=left, op=how, right=right) if type(how) in ARITHMETIC:
            return ARITHMETIC[type(how)](_value(left), _value(right))
        case ast.Compare(left=left, ops=[how], comparators=[right]) if type(how) in RELATIONS:
            return int(RELATIONS[type(how)](_value(left), _value(right)))
    raise ValueError
