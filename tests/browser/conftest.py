"""One Chromium for all tests of pages; where there is none, they are skipped with a word."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from predict.cli import main
from predict.explorer.answers import Explorer
from predict.explorer.server import ExplorerServer

DEMO = Path("configs/runs/demo.yml")
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright here: pip install 'steptime[dev]'")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass(frozen=True, kw_only=True, slots=True)
class Visit:
    """A page that is open, with what it asked for and what its console said."""

    page: Any
    requests: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


@pytest.fixture
def visit(chromium: Any) -> Iterator[Any]:
    """Opens an address at a width, with requests and console watched."""
    contexts = []

    def opened(address: str, *, width: int = 1280, dark: bool = False) -> Visit:
        scheme = "dark" if dark else "light"
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
        )
        contexts.append(context)
        found = Visit(page=context.new_page())
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.on("console", lambda said: found.faults.append(said.text) if said.type == "error" else None)
        found.page.on("pageerror", lambda error: found.faults.append(str(error)))
        found.page.goto(address)
        found.page.wait_for_selector("svg .mark")
        return found

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def report(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a report of two plans, the second with a hostile name."""
    folder = tmp_path_factory.mktemp("report")
    hostile = folder / f"{HOSTILE}.yml"
    hostile.write_text(DEMO.read_text(encoding="utf-8").replace("micro: 2", "micro: 1"))
    assert main(["report", str(DEMO), str(hostile), "-o", str(folder / "report.html")]) == 0
    return (folder / "report.html").as_uri()


@pytest.fixture(scope="session")
def explorer(chromium: Any) -> Iterator[str]:
    """The address of an explorer of the demo run."""
    with ExplorerServer(Explorer(DEMO, jobs=1)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.address
        server.shutdown()
