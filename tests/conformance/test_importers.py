"""Every importer of sampling/importers says what it takes, and refuses what it cannot read by its path; a file dropped in is held to that by itself."""

from pathlib import Path

import pytest

from sampling.errors import UserError
from sampling.importers import Importer, importers
from sampling.importers.table import ImportRequest

JUNK = {
    "empty": b"",
    "binary": b"\x00\xff\xfe" * 50,
    "text": b"nothing of this kind\n" * 3,
    "json": b'{"a": [1, {}]}\n',
}


@pytest.fixture(params=importers())
def importer(request: pytest.FixtureRequest) -> Importer:
    return importers()[request.param]


def test_it_says_what_its_path_is(importer: Importer) -> None:
    assert importer.path.strip()


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("suffix", [".csv", ".json", ".log", ".whl", ".parquet"])
def test_a_file_of_another_kind_is_refused_by_its_name_or_holds_no_rows(
    importer: Importer, junk: str, suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"rows{suffix}"
    path.write_bytes(JUNK[junk])
    try:
        tables = importer.tables(ImportRequest(path=path, system="h100_sxm"))
    except UserError as refused:
        assert path.name in str(refused) or str(tmp_path) in str(refused)
        assert refused.exit_code in (2, 3)
    else:
        assert not any(table.rows for table in tables)


def test_a_path_that_is_not_there_is_refused(importer: Importer, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing"):
        importer.tables(ImportRequest(path=tmp_path / "nothing", system="h100_sxm"))
