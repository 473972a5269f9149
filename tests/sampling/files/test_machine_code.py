"""When the compiled form of a loop is worth its compilation."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from sampling.files import machine_code


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_code, "ACCOUNT", machine_code._Account())


def test_an_engine_without_kept_code_is_compiled_after_many_turns(tmp_path: Path) -> None:
    played = _loop_of(tmp_path / "engine.py")
    assert not machine_code.pays_to_compile(played, machine_code.COMPILING // 2)
    assert not machine_code.pays_to_compile(_loop_of(tmp_path / "another.py"), machine_code.COMPILING // 2)
    assert machine_code.pays_to_compile(played, machine_code.COMPILING // 2) == machine_code.numba_is_there()


def test_kept_code_of_an_engine_is_loaded_for_few_turns(tmp_path: Path) -> None:
    played = _loop_of(tmp_path / "engine.py")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "engine.play-1.py311.nbi").touch()
    enough = machine_code.LONG // machine_code.TURNS_OF_AN_ENGINE + 1
    assert not machine_code.pays_to_compile(played, 1)
    assert machine_code.pays_to_compile(played, enough) == machine_code.numba_is_there()


def test_the_arrays_of_a_compiled_loop_are_of_one_kind() -> None:
    """numba compiles a loop again for an array that cannot be written, or whose numbers are not side by side."""
    whole = np.arange(6)
    fixed = whole[::2]
    fixed.flags.writeable = False
    for values in (whole, fixed, [0, 2, 4]):
        made = machine_code.form_of(machine_code=True)(values)
        assert made.flags.writeable and made.flags.c_contiguous and made.dtype == np.int64
        assert machine_code.form_of(machine_code=False)(values) == list(values)


def test_machine_code_is_kept_until_the_options_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    loop = _written(tmp_path, "def loop(values):\n    values[0] = 1\n")
    assert _loads(loop) == 0
    assert _loads(loop) == 1
    other = tmp_path / "machine_code.py"
    other.write_text(Path(machine_code.__file__).read_text() + "# another option\n")
    monkeypatch.setattr(machine_code, "__file__", str(other))
    assert _loads(loop) == 0


def test_numba_takes_its_private_option_that_counts_no_references(tmp_path: Path) -> None:
    numba = pytest.importorskip("numba")
    loop = _written(tmp_path, "import numpy as np\ndef loop(values):\n    values[0] = np.zeros(3).sum()\n")
    with pytest.raises(numba.TypingError, match="Only accept returning of array passed into the function"):
        machine_code.compiled(loop)(np.zeros(1))


def _loads(loop: Callable[..., Any]) -> int:
    """The number of times that kept machine code of a loop is loaded for a call."""
    machine_code.compiled.cache_clear()
    made: Any = machine_code.compiled(loop)
    made(np.zeros(1))
    return sum(made.stats.cache_hits.values())


def _written(folder: Path, text: str) -> Callable[..., Any]:
    """The loop of a module with this text, beside whose file numba keeps machine code."""
    (folder / "written.py").write_text(text)
    return cast("Callable[..., Any]", runpy.run_path(str(folder / "written.py"))["loop"])


def _loop_of(file: Path) -> Callable[..., Any]:
    """A loop that the file might hold."""
    found: dict[str, Any] = {}
    exec(compile("def play() -> None: ...", str(file), "exec"), found)
    return cast("Callable[..., Any]", found["play"])
