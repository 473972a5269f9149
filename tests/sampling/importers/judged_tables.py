"""How much of an imported table is quarantined."""

from sampling.hardware.cluster import load_cluster
from sampling.importers.gate import judge
from sampling.importers.table import Table


def quarantined(table: Table) -> float:
    cluster = load_cluster(hardware=table.hardware, nodes=1, gpus_per_node=1, profile="test")
    return sum(map(bool, judge(table, cluster))) / len(table.rows)
