"""The ledger of a step. Called, it makes the books of a config: `predict.ledger("configs/runs/demo.yml").account_us`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from predict.config.document import Document
    from predict.ledger.books import Ledger


class LedgerFace(ModuleType):
    """This package, which can be called too: `predict.ledger` is both the home of `conventions` and the command's function."""

    def __call__(self, config: Path | str | Document, overrides: Sequence[str] = ()) -> Ledger:
        """The five books of a config's step, and its MFU by convention.

        ConfigError lists every fault of the config; SamplesError is for damaged regressors.
        """
        from predict.ledger.books import ledger_of

        # the path is the whole package's, which stands above this one: looked up, so that no import runs upwards
        path = sys.modules[__name__.partition(".")[0]]
        return ledger_of(path.estimate(path.load(config, overrides), require_fit=False))


sys.modules[__name__].__class__ = LedgerFace
