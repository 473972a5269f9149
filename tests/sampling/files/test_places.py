"""Where the shipped files and the user's own rows lie."""

from pathlib import Path

import pytest

from sampling.files import places
from sampling.store.profiles import home_of


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers of an installed wheel to a user whose home is `tmp_path`."""
    monkeypatch.delenv(places.DATA_VARIABLE, raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(places, "SHIPPED", places.INSTALLED)


def test_a_clone_keeps_the_users_rows_beside_the_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(places.DATA_VARIABLE, raising=False)
    assert places.own_data() == places.SHIPPED_DATA == places.PACKAGE.parent / "data"
    assert (places.CONFIGS / "hardware" / "h100-sxm.yml").is_file()


@pytest.mark.usefixtures("installed")
def test_an_installation_keeps_them_in_the_users_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    assert places.own_data() == tmp_path / ".local" / "share" / "steptime"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "mine"))
    assert places.own_data() == tmp_path / "mine" / "steptime"
    monkeypatch.setattr("sys.platform", "darwin")
    assert places.own_data() == tmp_path / "Library" / "Application Support" / "steptime"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert places.own_data() == tmp_path / "local" / "steptime"


@pytest.mark.usefixtures("installed")
def test_the_variable_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(places.DATA_VARIABLE, "rows")
    assert places.own_data() == tmp_path / "rows"


def test_own_rows_come_before_the_shipped_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(places.DATA_VARIABLE, str(tmp_path))
    shipped = next((places.SHIPPED_DATA / "regressors").iterdir()).name
    assert home_of(shipped) == places.SHIPPED_DATA
    (tmp_path / "samples" / shipped).mkdir(parents=True)
    assert home_of(shipped) == tmp_path
    assert home_of("unknown") == tmp_path


@pytest.mark.parametrize(
    ("in_a_clone", "sampled", "fitted"),
    [
        (True, "`make sample PROFILE=mine RUNS=…`", "`make train-regressors PROFILE=mine`"),
        (
            False,
            "`python -m regressors.active.guided_sampling --profile mine --calls calls.json` after "
            "`predict calls RUN.yml --output calls.json`",
            "`python -m regressors --profile mine`",
        ),
    ],
)
def test_commands_need_no_makefile_where_there_is_none(
    in_a_clone: bool, sampled: str, fitted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "HAS_MAKEFILE", in_a_clone)
    assert places.sampling_command("mine", runs=" RUNS=…") == sampled
    assert places.fitting_command("mine") == fitted
