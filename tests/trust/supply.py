"""Where the code comes from and what it reaches: `python -m tests.trust.supply`, or `… --lock` and `… --wheel FOLDER` (make wheel).

Two builds of the wheel are compared, its dependencies listed beside it (CycloneDX), the development environment held against its lock, known
faults of its packages asked for, and the commands run where no socket reaches beyond this machine.
"""

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.trust.table import command, show

ROOT = Path(__file__).resolve().parents[2]
NAME = "steptime"
LOCK = ROOT / "requirements-dev.txt"
LOCK_HEAD = """\
# The development environment, package by package: `make setup` installs these releases. `python -m tests.trust.supply --lock` writes this
# file from the environment that it runs in. torch and what only torch needs are left out, since their builds differ by machine.
"""
OF_THE_MACHINE = ("torch", "nvidia-", "triton", "cuda-")
"""Starts of the names of packages whose builds are the machine's."""
BUILT_FROM = (
    "sampling",
    "regressors",
    "predict",
    "configs",
    "data",
    "pyproject.toml",
    "setup.py",
    "README.md",
    "LICENSE",
)
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
FIRST_ZIP_TIME_S = 315_619_200
"""1980-01-02, before which a wheel's archive has no time."""


def needed(extras: Sequence[str] = ()) -> list[Distribution]:
    """The installed distributions that this project needs, with extras, and those that they need; by name."""
    found: dict[str, Distribution] = {}
    wanted = [(NAME, frozenset(extras))]
    seen = set()
    while wanted:
        name, of = wanted.pop()
        if (name, of) in seen:
            continue
        seen.add((name, of))
        try:
            one = distribution(name)
        except PackageNotFoundError:
            continue  # needed by another platform alone
        found[name] = one
        for text in one.requires or ():
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in {"", *of}):
                wanted.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    del found[NAME]
    return [found[name] for name in sorted(found)]


# The lock.


def locked() -> str:
    """The content of the lock for this environment."""
    lines = [f"{canonicalize_name(one.name)}=={one.version.partition('+')[0]}" for one in needed(["dev"])]
    return LOCK_HEAD + "".join(f"{line}\n" for line in lines if not line.startswith(OF_THE_MACHINE))


def differing_from_lock() -> list[str]:
    """Packages of this environment that the lock has in another release, or lacks."""
    return sorted(set(locked().splitlines()) - set(LOCK.read_text().splitlines()))


# The wheel and the list of its dependencies.


def copied_sources(place: Path) -> Path:
    """What a wheel is built from, in a folder of its own, with modes that do not depend on this machine."""
    source = place / "source"
    source.mkdir(parents=True)
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "imported"))
        else:
            shutil.copy(ROOT / name, source)
    for path in source.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return source


def built_wheel(place: Path, source: Path | None = None) -> Path:
    """A wheel of the sources, built in `place` without a network, with the time of the last commit on all its files."""
    source = source or copied_sources(place)
    committed = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    environment = {**os.environ, "SOURCE_DATE_EPOCH": committed.stdout.strip() or str(FIRST_ZIP_TIME_S)}
    asked = [sys.executable, "-c", BUILD, str(place)]
    subprocess.run(asked, cwd=source, env=environment, umask=0o022, check=True, capture_output=True)
    return next(place.glob("*.whl"))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def bill_of_materials(wheel: Path) -> dict[str, Any]:
    """The wheel and the packages that it needs, as CycloneDX 1.6 has them (https://cyclonedx.org/docs/1.6/json/)."""
    version = wheel.name.split("-")[1]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest(wheel))}",
        "version": 1,
        "metadata": {
            "component": {
                **_component(NAME, version),
                "type": "application",
                "licenses": [{"expression": "Apache-2.0"}],
                "hashes": [{"alg": "SHA-256", "content": digest(wheel)}],
            }
        },
        "components": [
            {**_component(one.name, one.version), "licenses": [{"license": {"name": _license(one)}}]}
            for one in needed()
        ],
    }


def _component(name: str, version: str) -> dict[str, Any]:
    purl = f"pkg:pypi/{canonicalize_name(name)}@{version}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _license(one: Distribution) -> str:
    stated = one.metadata.get("License-Expression") or one.metadata.get("License") or ""
    classes = [
        each.rpartition(" :: ")[2] for each in one.metadata.get_all("Classifier") or () if each.startswith("License ::")
    ]
    return (stated.splitlines() or classes or ["not stated"])[0]


def write_wheel(folder: Path) -> Path:
    """Build the wheel and lay it, with its bill of materials beside it, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        wheel = Path(shutil.copy(built_wheel(Path(place)), folder))
    bill = folder / f"{wheel.name.removesuffix('.whl')}.cdx.json"
    bill.write_text(json.dumps(bill_of_materials(wheel), indent=1) + "\n")
    return wheel


def equal_builds() -> tuple[str, str]:
    """The digests of two builds in two folders, whose files are of different ages and were copied under different umasks."""
    found = []
    for umask in (0o022, 0o077):
        before = os.umask(umask)
        try:
            with tempfile.TemporaryDirectory() as place:
                source = copied_sources(Path(place))
                for number, path in enumerate(sorted(source.rglob("*"))):
                    os.utime(path, (1e9 + umask * 1e6 + number, 1e9 + umask * 1e6 + number))
                found.append(digest(built_wheel(Path(place), source)))
        finally:
            os.umask(before)
    return found[0], found[1]


# No network.

GUARD = """\
import sys

def _guard(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) else None
        if host is not None and not (str(host).startswith("127.") or host in ("::1", "localhost")):
            _reach(f"{event} {host}")
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        host = arguments[0]
        if host not in (None, "", b"", "localhost", b"localhost") and not str(host).startswith(("127.", "::1")):
            _reach(f"{event} {host}")

def _reach(what):
    sys.stderr.write(f"REACHES OUT: {what}\\n")
    raise PermissionError(what)

sys.addaudithook(_guard)
"""
"""Python that forbids the process it starts in every socket but those of this machine."""
RUN, LARGE = "configs/runs/demo.yml", "configs/runs/llama3-70b-64xh100.yml"
GRPO, SERVING = "configs/rl/this-machine/grpo.yml", "configs/serving/llama3-8b-h100.yml"
OFFLINE = (
    f"one-batch {RUN}",
    "one-batch --model llama3-70b --gpus 64xh100",
    "one-batch --model https://huggingface.co/gpt2 --gpus 8xh100",
    "one-batch --model openai-community/gpt2 --gpus 8xh100",
    f"ledger {RUN}",
    f"diagnose {RUN} --log 412ms",
    f"speed-of-light {RUN}",
    "speed-of-light docs/examples/speed_of_light/transformer_layer.py",
    f"search {RUN} --set batch.micro=[1,2] --jobs 2 --top 2",
    f"search {SERVING} --set placement.tp=[1,2] --set load.duration_s=5 --top 1",
    "schedule --pp 2 --microbatches 4 --schedule 1f1b",
    f"memory {RUN}",
    f"sweep {RUN} --vary batch.micro=1,2",
    f"compare {RUN} {RUN}",
    f"sensitivity {RUN}",
    f"days {RUN} --tokens 1B",
    f"job {RUN} --tokens 1B",
    f"report {RUN} -o {{out}}/page.html",
    f"plot waterfall {RUN} -o {{out}}/waterfall.svg",
    f"trace {RUN} -o {{out}}/trace.json",
    f"export {LARGE} --to megatron-lm --output {{out}}",
    "import-config docs/examples/other_tools/llama3_70b.toml",
    f"calls {RUN} --output {{out}}/calls.json",
    f"serving {SERVING} --model formula",
    f"serving-step {SERVING} --decodes 8x100 --prefill 64",
    f"rl-step {GRPO}",
    f"calibrate {LARGE} --measured 14.9s --dry-run",
    "validate published --truth data/published/runs.csv",
    "history",
    "schema",
    "doctor",
)
SMALL = "--set batch.global=4 --set batch.seq_len=32 --set model.num_hidden_layers=2"
TRAINED = (f"measure {RUN} {SMALL} --steps 2", f"benchmark {RUN} --gpus 1")
"""Commands that time for real, whose ranks meet on this machine."""
ALONE = "import shlex, sys\nfrom predict.cli import main\nfor line in sys.argv[1:]:\n    print('$', line, file=sys.stderr)\n    main(shlex.split(line))\n"


def offline(lines: Sequence[str]) -> tuple[list[str], str]:
    """Lines of stderr of commands under the guard that reach out, and the whole of it. The processes that they start have the guard too."""
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "sitecustomize.py").write_text(GUARD)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([place, str(ROOT)]), "HOME": place}
        given = [line.replace("{out}", shlex.quote(place)) for line in lines]
        done = subprocess.run(
            [sys.executable, "-c", ALONE, *given],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    return re.findall(r"REACHES OUT: .*", done.stderr), done.stderr


# Known faults.


def audit() -> str:
    """Findings of pip-audit for the lock, or why there are none to be had."""
    program = shutil.which("pip-audit")
    if program is None:
        return "not asked: no pip-audit here (pip install pip-audit)"
    asked = [
        program,
        "--requirement",
        str(LOCK),
        "--no-deps",
        "--disable-pip",
        "--progress-spinner",
        "off",
        "--format",
        "json",
    ]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=600)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        return f"not asked: {(done.stderr.strip().splitlines() or ['no answer'])[-1][:120]}"
    known = [each for each in packages if "skip_reason" not in each]
    faulty = [each["name"] for each in known if each["vulns"]]
    if not known:
        return f"not asked: the index here knows no vulnerabilities of any of {len(packages)} packages"
    return f"findings for {', '.join(faulty)}" if faulty else f"none in {len(known)} of {len(packages)} packages"


def checks() -> Iterator[tuple[str, str, bool]]:
    """What is checked, what was found, and whether it holds."""
    first, second = equal_builds()
    yield "two builds of the wheel", f"sha256 {first[:16]}… and {second[:16]}…", first == second
    with tempfile.TemporaryDirectory() as folder:
        components = bill_of_materials(write_wheel(Path(folder)))["components"]
    yield "packages in the bill of materials beside the wheel", str(len(components)), bool(components)
    others = differing_from_lock()
    yield (
        "releases that differ from the lock",
        ", ".join(others) or f"none of {len(locked().splitlines()) - 3}",
        not others,
    )
    found = audit()
    yield "known vulnerabilities (pip-audit of the lock)", found, not found.startswith("findings")
    reached, said = offline((*OFFLINE, *TRAINED))
    ran = said.count("\n$ ") + said.startswith("$ ")
    yield (
        "commands that reach beyond this machine",
        f"{len(reached)} of {ran}",
        not reached and ran == len(OFFLINE) + len(TRAINED),
    )


def parser() -> argparse.ArgumentParser:
    made = command(__doc__, cases=1)
    made.add_argument("--lock", action="store_true", help=f"write {LOCK.name}")
    made.add_argument("--wheel", type=Path, metavar="FOLDER", help="write the wheel and its bill of materials there")
    return made


def main() -> None:
    options = parser().parse_args()
    if options.lock:
        LOCK.write_text(locked())
    elif options.wheel:
        print(write_wheel(options.wheel))
    else:
        found = list(checks())
        rows = [[what, said, "yes" if held else "no"] for what, said, held in found]
        show("supply", ("check", "found", "held"), rows, f"Python {sys.version.split()[0]}.", keep=options.keep)
        sys.exit(not all(held for *_, held in found))


if __name__ == "__main__":
    main()
