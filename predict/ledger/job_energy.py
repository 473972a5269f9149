"""Energy of a whole job: boards by what they do, hosts, network and cooling, and what the grid emits for it."""

from dataclasses import dataclass

from predict.interval import Interval
from predict.step.power import POWER_WIDTH, BoardPower
from sampling.hardware.cluster import Gpu

HOST_SHARE = 0.5
"""Power of processors, memory, fans and power supplies over the limit of the boards: an HGX H100 node draws 8.4 kW at nearly full load
(Latif et al., arXiv 2412.08602), of which 8 boards are 5.6 at most."""
NETWORK_SHARE = 0.05
"""The same of switches: three ports a GPU in a network of two levels, of the 64 that take 747 W with passive cables (NVIDIA QM9700 data
sheet), to 700 W of H100."""
PUE = 1.1
"""Power of the whole building over that of its computers, in large sites (Google, 2024 environmental report: 1.09; Meta: 1.08)."""
W_PER_MW = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """Power that is drawn beside the boards."""

    host_w: float
    """W a GPU."""
    network_w: float
    pue: float
    kg_per_kwh: float
    """kg of CO2e per kWh of the grid; 0 where it is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobEnergy:
    """MWh of a job, the mean of each part, and of all of it the median with its 90 % interval."""

    total_mwh: Interval
    boards_mwh: float
    hosts_mwh: float
    network_mwh: float
    cooling_mwh: float
    board_w: float
    """Mean W of a board while steps run."""
    limit_w: float
    """W of a board at its limit."""
    idle_w: float
    """W of a board while the job saves, restarts or waits, and of spare nodes."""
    co2_t: Interval | None
    """t of CO2e; None where the grid's intensity is not given."""


def site_of(gpu: Gpu, *, host_w: float | None, network_w: float | None, pue: float, kg_per_kwh: float) -> Site:
    """The site as given, with the usual shares of the board's limit for what is not."""
    limit_w = gpu.power_w or 0.0
    return Site(
        host_w=HOST_SHARE * limit_w if host_w is None else host_w,
        network_w=NETWORK_SHARE * limit_w if network_w is None else network_w,
        pue=pue,
        kg_per_kwh=kg_per_kwh,
    )


def job_energy(
    gpu: Gpu,
    power: BoardPower,
    site: Site,
    *,
    busy_gpu_hours: float,
    gpu_hours: float,
    hours: Interval,
    mean_hours: float,
) -> JobEnergy:
    """The energy of so many GPU-hours, in some of which steps run: those of a job's `mean_hours`, of which `hours` has the quantiles."""
    idle_w = gpu.watts("idle")
    boards = (busy_gpu_hours * power.mean_w + (gpu_hours - busy_gpu_hours) * idle_w) / W_PER_MW
    hosts, network = (gpu_hours * each_w / W_PER_MW for each_w in (site.host_w, site.network_w))
    computers = boards + hosts + network
    total = hours.scaled(computers * site.pue / mean_hours).widened(POWER_WIDTH)
    return JobEnergy(
        total_mwh=total,
        boards_mwh=boards,
        hosts_mwh=hosts,
        network_mwh=network,
        cooling_mwh=computers * (site.pue - 1),
        board_w=power.mean_w,
        limit_w=gpu.power_limit_w or gpu.power_w or 0.0,
        idle_w=idle_w,
        co2_t=total.scaled(site.kg_per_kwh) if site.kg_per_kwh else None,
    )
