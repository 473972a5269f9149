"""Times of pages: a report beyond its estimate, the explorer's first page, and its answers to changes; each the best of three."""

from pathlib import Path

from stopwatch import best_of

from predict import estimate, load
from predict.explorer.answers import Explorer
from predict.explorer.page import explorer_page
from predict.reports.page.content import report_content
from predict.reports.page.report import report_page

RUNS = Path(__file__).parents[2] / "configs" / "runs"
LARGE = RUNS / "deepseek-v3-1024xh100.yml"
ROUNDS = 3
CHANGES = ({"batch.micro": 2}, {"plan.recompute": "full"}, {"batch.seq_len": 2048}, {"plan.ep": 32})


def main() -> None:
    prediction = estimate(load(LARGE), require_fit=False)

    def report() -> str:
        return report_page(report_content([LARGE], [], [prediction], [None], [None]), title="report")

    print(f"report of {LARGE.stem}, beyond the estimate: {best_of(report, ROUNDS):.2f} s, {len(report()) / 1e3:.0f} kB")
    for config in (RUNS / "llama3-70b-64xh100.yml", LARGE):
        explorer = Explorer(config)
        explorer.warm()
        print(
            f"explorer of {config.stem}: first page {best_of(lambda own=explorer: explorer_page(own.first_page()), ROUNDS):.2f} s"
        )  # type: ignore[misc]
        answers = [best_of(lambda own=explorer, to=change: own.answer(to), ROUNDS) for change in CHANGES]  # type: ignore[misc]
        print("  an answer " + ", ".join(f"{1e3 * each:.0f} ms" for each in answers))


if __name__ == "__main__":
    main()
