"""A summary of few published rows does not replace that of many."""

from __future__ import annotations

import io
import json
import runpy
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT


def test_a_smaller_result_replaces_a_larger_one_only_when_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
