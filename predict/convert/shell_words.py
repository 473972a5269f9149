"""The words of a shell script, and the blocks and variables that they spell; what they do is said in `shell`.

A word keeps its quotes, which are taken off where it is expanded.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

SEPARATORS = (";;", "&&", "||", ";", "&", "|", "\n")
OPENING, CLOSING = ("if", "for", "while", "until", "case"), ("fi", "done", "done", "done", "esac")
JOINT = re.compile(r"\\\r?\n")
"""A backslash that joins the next line, which it does not at the end of a comment."""
ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\[\w*\])?(\+?)=")

# Text into words and separators.


def words_of(text: str) -> Iterator[str]:
    """Words and separators; comments and joined lines are gone."""
    place, start = 0, -1
    while place < len(text):
        character, joint = text[place], JOINT.match(text, place)
        if start < 0 and character == "#":
            place = _end_of_line(text, place)
        elif character in " \t\r" or joint:
            if start >= 0:
                yield text[start:place]
            place, start = joint.end() if joint else place + 1, -1
        elif separator := next((each for each in SEPARATORS if text.startswith(each, place)), ""):
            if start >= 0 and text[start:place].endswith((">", "<")) and separator == "&":
                place += 1  # 2>&1
                continue
            if start >= 0:
                yield text[start:place]
            yield separator
            place, start = place + len(separator), -1
        else:
            start = place if start < 0 else start
            place = _after(text, place)
    if start >= 0:
        yield text[start:]


def _end_of_line(text: str, place: int) -> int:
    end = text.find("\n", place)
    return len(text) if end < 0 else end


def _after(text: str, place: int) -> int:
    """The place after a character, or after a whole quotation, substitution or array."""
    character = text[place]
    if character == "'":
        return _closing(text, place + 1, "'")
    if character in '"`':
        return _closing_quote(text, place + 1, character)
    if text.startswith(("$(", "<(", ">(", "${"), place):
        return closing_bracket(text, place + 1)
    if character == "(" and place and text[place - 1] == "=":
        return closing_bracket(text, place)
    return place + (2 if character == "\\" else 1)


def _closing(text: str, place: int, mark: str) -> int:
    end = text.find(mark, place)
    return len(text) if end < 0 else end + 1


def _closing_quote(text: str, place: int, mark: str) -> int:
    while place < len(text) and text[place] != mark:
        place = _after(text, place) if text[place] in "\\$" else place + 1
    return place + 1


def closing_bracket(text: str, place: int) -> int:
    opening = text[place]
    closing = {"(": ")", "{": "}"}[opening]
    depth = 0
    while place < len(text):
        if text[place] == opening:
            depth += 1
        elif text[place] == closing:
            depth -= 1
            if not depth:
                return place + 1
        elif text[place] == "#" and text[place - 1].isspace():
            place = _end_of_line(text, place)
            continue
        elif text[place] in "\\'\"":
            place = _after(text, place)
            continue
        place += 1
    return len(text)


def quoted_parts(word: str) -> Iterator[tuple[str, str]]:
    """The parts of a word: the quotes around each, and its text."""
    place = plain = 0
    while place < len(word):
        character = word[place]
        if character in "'\"":
            if plain < place:
                yield "", word[plain:place]
            end = _after(word, place)
            yield character, word[place + 1 : end - 1]
            place = plain = end
        elif character == "\\" and place + 1 < len(word):
            if plain < place:
                yield "", word[plain:place]
            yield "'", word[place + 1]
            place = plain = place + 2
        else:
            place = _after(word, place)
    if plain < len(word):
        yield "", word[plain:]


def assigned_name(word: str) -> str:
    """The variable that a word such as `A+=1` assigns; the word itself where it only names one."""
    found = ASSIGNED.match(word)
    return found[1] if found else word


def is_redirection(word: str) -> bool:
    return bool(re.match(r"(\d?|&)[<>]", word))


def written_to(words: list[str]) -> str | None:
    """The file that a command's output goes to."""
    for number, word in enumerate(words):
        if word in (">", ">>") and number + 1 < len(words):
            return words[number + 1]
        if re.match(r">>?[^&>]", word):
            return word.lstrip(">")
    return words[1] if len(words) > 1 and words[0] == "tee" else None


def end_of_block(words: list[str], place: int) -> int:
    """The place of the word that ends the block at `place`."""
    depth = 0
    for at in range(place, len(words)):
        first = at == place or words[at - 1] in (*SEPARATORS, "then", "do", "else", "{")
        if first and words[at] in OPENING:
            depth += 1
        elif first and words[at] in CLOSING:
            depth -= 1
            if not depth:
                return at
    return len(words)


def end_of_command(words: list[str], place: int) -> int:
    """The place of the separator behind the command, block or group at `place`."""
    at = place
    if words[place] in OPENING:
        at = end_of_block(words, place)
    elif words[place] == "{":
        depth = 0
        for at in range(place, len(words)):
            depth += (words[at] == "{") - (words[at] == "}")
            if not depth:
                break
    elif words[place] == "[[" and "]]" in words[place:]:
        at = words.index("]]", place)
    return next((each for each in range(at, len(words)) if words[each] in SEPARATORS), len(words))


def arms_of_if(inside: list[str]) -> list[tuple[list[str], list[str]]]:
    """Condition and body of each arm of an `if`; the condition of `else` is empty."""
    arms: list[tuple[list[str], list[str]]] = []
    condition: list[str] = []
    body: list[str] | None = None
    place = 0
    while place < len(inside):
        word = inside[place]
        first = not place or inside[place - 1] in (*SEPARATORS, "then", "else")
        if first and word in OPENING:
            end = end_of_block(inside, place)
            (condition if body is None else body).extend(inside[place : end + 1])
            place = end
        elif first and word == "then":
            body = []
        elif first and word in ("elif", "else"):
            arms.append((condition, body or []))
            condition, body = [], None if word == "elif" else []
        else:
            (condition if body is None else body).append(word)
        place += 1
    return [*arms, (condition, body or [])]


def arms_of_case(words: list[str]) -> list[tuple[list[str], list[str]]]:
    """Patterns and body of each arm of a `case`."""
    arms: list[tuple[list[str], list[str]]] = []
    patterns: list[str] = []
    body: list[str] | None = None
    for word in words:
        if body is None:
            if word in ("\n", "|", "in"):
                continue
            patterns.append(word.lstrip("(").rstrip(")"))
            body = [] if word.endswith(")") else None
        elif word == ";;":
            arms.append((patterns, body))
            patterns, body = [], None
        else:
            body.append(word)
    return [*arms, (patterns, body)] if patterns and body else arms


def is_function(words: list[str], place: int) -> bool:
    text = " ".join(words[place : place + 3])
    return (
        bool(re.match(r"(function\s+[\w-]+|[A-Za-z_][\w-]*\s*\(\s*\))\s*(\n\s*)?\{?", text))
        and "(" in text[:60].split("=")[0]
    )


def end_of_variable(text: str, place: int) -> int:
    if text.startswith(("${", "$("), place):
        return closing_bracket(text, place + 1)
    found = re.compile(r"\$(\w+|[@*#?$!-])").match(text, place)
    return found.end() if found else place + 1


def parts_of_variable(written: str) -> tuple[str, str, str]:
    """Name, index and change of `$NAME`, `${NAME}`, `${NAME[@]}`, `${NAME:-default}`."""
    found = re.fullmatch(r"\$(?:\{(\w+)(?:\[([^\]]*)\])?(.*)\}|(\w+))", written, re.S)
    return (found[1] or found[4] or "", found[2] or "", found[3] or "") if found else ("", "", "")


# Words of a command as arguments.


def arguments_in(words: Sequence[str], switches: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Argument → value, names with underscores; of one given twice, the last. `switches` take no value. `a.b=c` is an argument too."""
    found: dict[str, Any] = {}
    name = ""
    values: list[str] = []

    def end() -> None:
        if name:
            found[name] = True if not values else values[0] if len(values) == 1 else list(values)

    for word in words:
        if flag := re.match(r"--?([A-Za-z][\w.-]*)(?:=(.*))?$", word, re.S):
            end()
            name, values = flag[1].replace("-", "_"), [] if flag[2] is None else [flag[2]]
            if values:
                end()
                name = ""
        elif setting := re.match(r"[+~]{0,2}([A-Za-z_][\w./@-]*)=(.*)", word, re.S):
            end()
            name = ""
            found[setting[1]] = setting[2]
        elif name in switches and not (word.lower() in ("true", "false") and not values):
            end()
            name = ""
        elif name and not (word.startswith("$") and values):
            values.append(word)
    end()
    return found
