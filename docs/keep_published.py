"""Write the summary and the classes of `predict validate published --json`, read from stdin, to benchmarks/published.json."""

from __future__ import annotations

import json
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

PATH = Path(__file__).resolve().parent.parent / "benchmarks" / "published.json"


def main() -> None:
    content = json.load(sys.stdin)
    reasons = Counter(row["why"] for row in content["rows"] if row["status"] == "not_expressible")
    summary = {
        "date": datetime.now(UTC).date().isoformat(),
        "rows": len(content["rows"]),
        "summary": content["summary"],
        "classes": content["classes"],
        "not_expressible": dict(reasons.most_common()),
    }
    kept = json.loads(PATH.read_text())["rows"] if PATH.is_file() else 0
    if summary["rows"] < kept and "--smaller" not in sys.argv[1:]:
        sys.exit(
            f"{PATH}: not replaced: it sums up {kept} rows, and these are {summary['rows']}; give all with TRUTH=FILE, or "
            "pipe into `python docs/keep_published.py --smaller` to replace it all the same"
        )
    PATH.write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
