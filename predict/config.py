"""A run's YAML file, with overrides and aliases, to a TrainingRun; every fault of it in one ConfigError.

    model: ../models/llama3-8b.json        # a Hugging Face config.json, relative to this file, or its keys
    cluster: ../clusters/this-machine.yml  # or {hardware: cpu, nodes: 1, gpus_per_node: 2, profile: this-machine}
    plan: {tp: 1, pp: 2, schedule: 1f1b}   # the keys of Plan, each with its default
    batch: {global: 8, micro: 1, seq_len: 512}
    precision: fp32

What is well-formed but not modelled yet is refused, never ignored.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from predict.aliases import ALIASES, SECTIONS, alias_of, names_for, resolve
from predict.config_rules import broken_rules
from predict.config_sections import BATCH_KEYS, CLUSTER_KEYS, PLAN_KEYS, PRECISION_KEY, TOP_KEYS, json_schema
from predict.documents import Read, parse_yaml, read_json, read_yaml
from predict.faults import Fault, config_error, join, shown
from predict.keys import check, unknown_keys
from predict.workload.huggingface import override, read_model
from predict.workload.model import ModelSpec
from predict.workload.plan import Batch, Plan
from predict.workload.run import TrainingRun
from sampling.errors import ConfigError
from sampling.hardware import Cluster, load_cluster
from sampling.store import DATA, read_manifest, samples_directory

__all__ = ["json_schema", "load"]
