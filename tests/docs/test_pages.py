"""The documentation's pages hold together."""

import argparse
import io
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from predict.cli import one_batch, parser
from predict.cli.table import COMMANDS, Command
from predict.rank.exchanges import FSDP
from predict.step import breakdown
from predict.step.breakdown import GLUE, HOST
from predict.workload.layer import ACCUMULATION, RECOMPUTE
from tests.docs.pages import ROOT, links, pages

LONGEST_README_BYTES = 9_000
FOLDERS = "sampling|regressors|predict|configs|data|tests|docs|benchmarks|shared|facts|oracles|truth"
CITED = re.compile(rf"(?<![\w/.-])((?:{FOLDERS})/[\w./-]*\w)")
MADE_BY_THE_USER = ("data/imported", "data/refitted", "data/samples", "data/regressors", "data/published")


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    dead = [target for target in links(page) if not (page.parent / target.split("#")[0]).exists()]
    dead += [target for target in links(page) if "#" in target and not _has_heading(page, target)]
    assert dead == []


def _has_heading(page: Path, target: str) -> bool:
    """Whether the page that a link leads to has the heading that it names; true for what is no page."""
    file, _, anchor = target.partition("#")
    path = page.parent / file if file else page
    if path.suffix != ".md" or not path.exists():
        return True
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


LINE_OF_A_FILE = re.compile(r"\.py:\d+")


def test_pages_name_functions_and_not_lines_which_the_next_change_moves() -> None:
    cited = [
        f"{page.relative_to(ROOT)}: {line}" for page in pages() for line in LINE_OF_A_FILE.findall(page.read_text())
    ]
    assert [each for each in cited if not each.startswith("docs/log.md")] == []


@pytest.mark.parametrize("name", ["published", "validation table", "accuracy table", "published accuracy"])
def test_tables_are_as_they_are_made_and_their_numbers_have_minus_signs(name: str) -> None:
    made = runpy.run_path(str(ROOT / "docs" / "refresh_tables.py"))["BLOCKS"][name]()
    assert f"<!-- {name} -->\n{made}\n<!-- end -->" in (ROOT / "docs/explanation/accuracy.md").read_text()
    assert not re.search(r"(?<![\w.-])-\d", made)


def test_the_readme_is_read_in_the_first_ten_minutes() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= LONGEST_README_BYTES


def test_every_page_is_reached_from_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    reached = {(index.parent / target).resolve() for target in links(index)}
    left = {page for page in pages() if page.parent != ROOT and page != index} - reached
    assert left == set()


def test_only_files_of_the_repository_are_cited() -> None:
    assert list(_dead_citations()) == []


def _dead_citations() -> Iterator[str]:
    examples = [folder for folder in (ROOT / "docs" / "examples").iterdir() if folder.is_dir()]
    for file in _sources():
        for line, text in enumerate(file.read_text().splitlines(), 1):
            for cited in CITED.findall(text):
                if Path(cited).stem.isupper():  # a word for any name
                    continue
                homes = (ROOT, file.parent, *examples)
                if not any((home / cited).exists() for home in homes) and not cited.startswith(MADE_BY_THE_USER):
                    yield f"{file.relative_to(ROOT)}:{line}: {cited}"


def _sources() -> Iterator[Path]:
    """Code, configs and pages; not the tests, nor what tells of the past."""
    listed = ["git", "ls-files", "*.py", "*.yml", "*.md"]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        if not name.startswith(("tests/", "docs/log.md", "docs/examples/", "CHANGELOG.md")):
            yield ROOT / name


# The committed pages of docs/reference are those that the code makes.

sys.path.append(str(ROOT / "docs"))  # as for a script that lies there
HELP = ("-h", "--help")


@cache
def generated() -> dict[str, str]:
    """File name → text of each page that the code makes."""
    made: dict[str, str] = runpy.run_path(str(ROOT / "docs" / "refresh_reference.py"))["pages"]()
    return made


@pytest.mark.parametrize("name", ["config.md", "commands.md", "truth.md", "constants.md"])
def test_a_generated_page_is_up_to_date(name: str) -> None:
    committed = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert generated()[name] == committed, "run `make reference`"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_page_of_commands_has_every_option(command: Command) -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    section = page.split(f"## predict {command.name}\n")[1].split("\n## ")[0]
    (subparsers,) = (
        action for action in parser([command.name])._actions if isinstance(action, argparse._SubParsersAction)
    )
    options = [option for action in subparsers.choices[command.name]._actions for option in action.option_strings]
    assert len(options) > len(HELP)
    assert [option for option in options if option not in section] == []


def test_the_names_listed_are_there() -> None:
    listed = (ROOT / "docs" / "reference" / "names.md").read_text(encoding="utf-8")
    assert set(listed.splitlines()) <= set(generated()["names.md"].splitlines()), "run `make reference`"


# The glossary and the help of `predict one-batch` name each entry of the ledger that is no operator.

ENTRIES = (
    *breakdown.NOT_COMPUTE,
    GLUE,
    HOST,
    breakdown.STRAGGLERS,
    breakdown.OVERHEAD,
    RECOMPUTE,
    ACCUMULATION,
    FSDP,
    "cp",
    "ep",
)


def test_every_entry_of_the_ledger_is_explained() -> None:
    glossary = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    explained = glossary.partition("## Entries of the ledger")[2]
    words = one_batch.DESCRIPTION.replace(",", " ").replace(":", " ").replace(";", " ").split()
    for entry in ENTRIES:
        assert f"| {entry} | " in explained, entry
        assert entry in words, entry


# A summary of few published rows does not replace that of many.


def test_a_smaller_result_replaces_a_larger_one_only_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = runpy.run_path(str(ROOT / "docs" / "keep_published.py"))["main"]
    path = tmp_path / "published.json"
    path.write_text(json.dumps({"rows": 2}))
    monkeypatch.setitem(main.__globals__, "PATH", path)
    content = json.dumps({"rows": [{"status": "predicted"}], "summary": [], "classes": []})
    for arguments, rows in (([], 2), (["--smaller"], 1)):
        monkeypatch.setattr(sys, "argv", ["keep_published.py", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(content))
        if arguments:
            main()
        else:
            with pytest.raises(SystemExit, match="sums up 2 rows, and these are 1"):
                main()
        assert json.loads(path.read_text())["rows"] == rows
