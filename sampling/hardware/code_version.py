"""The version of the code that takes rows: a commit of the clone, or a hash of the sources where no history travels with them."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from sampling.files.places import INSTALLED, PACKAGE, SHIPPED

NOT_SOURCE = ("__pycache__", INSTALLED.name)
"""Entries of the package's folder that its repository does not hold there."""


def code_version() -> str:
    """The commit of this clone, with a + where files differ from it; else `tree:` and the hash of the package's sources.

    The hash is that of git: `git rev-parse COMMIT:sampling` begins with it for every commit with the same sources. It stands for
    an installation, whatever clone that lies in, and for a copy of the working tree without its .git.
    """
    return (_commit() if SHIPPED != INSTALLED else "") or f"tree:{tree_hash(PACKAGE)[:12]}"


def _commit() -> str:
    def git(*arguments: str) -> str:
        result = subprocess.run(["git", *arguments], cwd=PACKAGE, capture_output=True, text=True, check=False)
        return result.stdout.strip()

    try:
        if not git("ls-files", "--", "__main__.py"):  # a copy inside another repository has no commit of its own
            return ""
        commit = git("rev-parse", "--short=12", "HEAD")
        return commit + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except FileNotFoundError:
        return ""


def tree_hash(folder: Path) -> str:
    """The hash that git gives to a folder of plain files (git-scm.com/book/en/v2, Git Internals, tree objects)."""
    return _tree(folder).hex()


def _tree(folder: Path) -> bytes:
    kept = [path for path in folder.iterdir() if path.name not in NOT_SOURCE]
    entries = []
    for path in sorted(kept, key=lambda path: path.name + "/" * path.is_dir()):
        mode, digest = ("40000", _tree(path)) if path.is_dir() else ("100644", _git_hash("blob", path.read_bytes()))
        entries.append(f"{mode} {path.name}\0".encode() + digest)
    return _git_hash("tree", b"".join(entries))


def _git_hash(kind: str, content: bytes) -> bytes:
    return hashlib.sha1(f"{kind} {len(content)}\0".encode() + content, usedforsecurity=False).digest()
