"""The published tables of estimate-train-time: what the import rejects of them, and how near analytic times come."""

import pandas as pd
import pytest

from sampling.call import Phase
from sampling.importers.estimate_train_time import read
from sampling.importers.table import ImportRequest
from sampling.operators.gemm import Gemm
from tests.oracles.public_errors import errors
from tests.oracles.shared import SHARED
from tests.predict.prices.devices import gpu_of
from tests.sampling.importers.judged_tables import quarantined

TABLES = SHARED / "data" / "estimate-train-time"


def test_corrupt_tables_are_quarantined_and_the_others_kept() -> None:
    tables = read(ImportRequest(path=TABLES / "original"))
    bad = {(table.hardware, table.name) for table in tables if table.rows and quarantined(table) > 0.05}
    assert bad == {
        ("gh200", "flash_atten backward"),
        ("gh200", "firstStage_optimizer step"),
        ("gh200", "allgather_large 8x1"),
    }
    for table in tables:
        assert quarantined(table) in (0.0, 1.0), table.name


@pytest.mark.parametrize("gpu", ["A100", "GH200"])
@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_linear_layers_take_as_long_in_both_directions(gpu: str, phase: Phase) -> None:
    rows = pd.read_parquet(TABLES / "operators.parquet")
    direction = "fwd" if phase == "forward" else "bwd"
    rows = rows[(rows.op == "linear3") & (rows.direction == direction) & rows.gpu.str.contains(gpu)]
    error, bias, within = errors(
        rows,
        lambda row: Gemm(dtype="fp16", m=int(row.l * row.b), n=int(4 * row.dim / row.mp), k=int(row.dim)),
        phase,
        gpu_of({"A100": "a100-80gb", "GH200": "gh200"}[gpu]),
    )
    assert error < 0.09
    assert abs(bias) < 0.06
    assert within > 0.9
