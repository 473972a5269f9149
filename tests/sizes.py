"""The sizes of the packages beside what they aim at: `python -m tests.sizes`. A code line holds code: no blank, comment or docstring."""

import ast
import io
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """Files, code lines, and those of them that import."""

    files: int
    code_lines: int
    import_lines: int

    @property
    def import_share(self) -> float:
        return self.import_lines / max(1, self.code_lines)


@dataclass(frozen=True, kw_only=True, slots=True)
class Aim:
    """The most code lines and, where one is set, files of a package."""

    code_lines: int
    files: int | None = None


AIMS: Mapping[str, Aim] = {
    "predict": Aim(code_lines=40_000, files=420),
    "sampling": Aim(code_lines=10_000),
    "regressors": Aim(code_lines=2_800),
    "tests": Aim(code_lines=27_000),
}
MOST_IMPORTS = 0.10


def size(folder: Path) -> Size:
    """Size of a folder's Python files; import lines count at the top of modules and inside functions alike."""
    sources = [path.read_text() for path in folder.rglob("*.py")]
    return Size(
        files=len(sources),
        code_lines=sum(len(code_lines(source)) for source in sources),
        import_lines=sum(len(import_lines(source)) for source in sources),
    )


def code_lines(source: str) -> set[int]:
    """Numbers of the lines that hold code."""
    held = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in NOT_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return held - docstring_lines(source)


def docstring_lines(source: str) -> set[int]:
    """Numbers of the lines of strings that stand by themselves: docstrings, those under fields and constants too."""
    return {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def import_lines(source: str) -> set[int]:
    """Numbers of the lines of import statements."""
    return {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def main() -> None:
    print(f"{'':12}{'code lines':>12}{'aim':>9}{'files':>8}{'aim':>7}{'imports':>10}{'aim':>7}")
    for name, aim in AIMS.items():
        found = size(ROOT / name)
        of_imports = f"{found.import_share:>10.1%}{MOST_IMPORTS:>7.0%}" if name != "tests" else ""
        files = f"{found.files:>8,}{aim.files or '':>7}"
        print(f"{name:12}{found.code_lines:>12,}{aim.code_lines:>9,}{files}{of_imports}")


if __name__ == "__main__":
    main()
