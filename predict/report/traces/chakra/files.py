"""The files of a Chakra trace: one `NAME.GPU.et` for each GPU, and `comm_group.json` with the members of the groups they name."""

from __future__ import annotations

import json
from pathlib import Path

from predict.report.traces.chakra.nodes import Groups, gpu_nodes
from predict.report.traces.chakra.places import Place
from predict.report.traces.chakra.schema import VERSION, encoded, messages
from predict.report.traces.pieces import Pieces
from predict.step.prediction import Prediction
from sampling.errors import UserError
from sampling.extras import require_library
from sampling.files.disk import write_atomically

GROUPS = "comm_group.json"
MOST_NODES = 20_000_000
"""Nodes of all files: some 2 GB."""


def save_chakra(prediction: Prediction, folder: Path, *, every_gpu: bool) -> list[Path]:
    """Write the traces of one GPU of each pipeline rank, the first, or of every GPU; the paths of their files.

    UserError without protobuf, and for more nodes than MOST_NODES.
    """
    require_library("google.protobuf")
    run, pieces, groups = prediction.run, Pieces(prediction.prices), Groups()
    locals_ = range(run.plan.tp * run.plan.cp * run.plan.dp) if every_gpu else range(1)
    written: list[Path] = []
    for pipeline_rank in range(run.plan.pp):
        for local in locals_:
            place = Place(plan=run.plan, pipeline_rank=pipeline_rank, local=local)
            nodes = gpu_nodes(prediction, place, pieces, groups)
            if len(nodes) * len(locals_) * run.plan.pp > MOST_NODES:
                raise UserError(
                    f"--every-gpu: about {len(nodes) * len(locals_) * run.plan.pp:,} nodes are more than {MOST_NODES:,}; take fewer "
                    "microbatches, or one GPU of each pipeline rank"
                )
            written.append(folder / f"{run.name}.{place.gpu}.et")
            write_atomically(written[-1], encoded([messages()["GlobalMetadata"](version=VERSION), *nodes]))
    members = {str(number): list(group) for group, number in groups.items()}
    write_atomically(folder / GROUPS, json.dumps(members, indent=1).encode())
    return written
