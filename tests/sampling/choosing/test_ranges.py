"""The ranges that shapes are drawn from, as files."""

from pathlib import Path

import pytest
import yaml

from sampling.choosing.ranges import read_ranges
from sampling.errors import ConfigError
from sampling.files.places import CONFIGS


def test_both_kinds_of_device_have_their_ranges() -> None:
    assert read_ranges(None, "cpu").dtype == "fp32"
    gpu = read_ranges(None, "h100-sxm")
    assert gpu.collectives is not None
    assert gpu.variants.every == 2


def test_every_range_that_is_not_one_is_named(tmp_path: Path) -> None:
    content = yaml.safe_load((CONFIGS / "sampling" / "cpu.yml").read_text())
    content |= {"tokens": [1024, 64], "hidden": [128], "ffn_ratio": [4.0, 2.0]}
    content["variants"]["topk"] = [1, 2, 3]
    path = tmp_path / "ranges.yml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError) as found:
        read_ranges(path, "cpu")
    for key in ("tokens: [1024, 64]", "hidden: [128]", "ffn_ratio: [4.0, 2.0]", "variants.topk: [1, 2, 3]"):
        assert key in str(found.value)
