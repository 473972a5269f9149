"""Notices within seconds that a rank has died, and ends this one with a message that names it.

A rank whose neighbour died may wait for it inside a collective for minutes. On a node, the kernel reports the end of a
sibling process at once (pidfd). If a whole node falls silent, rank 0 misses its heartbeats. The first rank that knows
writes the verdict into the store that all ranks share, and the others look there every second.
"""

import json
import os
import select
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from sampling.ranks.launch import RELAYED
from sampling.ranks.rank import Rank, host

LOOK_EVERY_MS = 1000
NODE_SILENT_S = 8.0
VERDICT_S = 12.0
"""Time that a rank whose communication failed waits for the verdict: the wait of a silent node, and some to publish it."""
FAREWELL = timedelta(seconds=15)
ACKNOWLEDGED = timedelta(seconds=3)
KEPT = "rows kept so far stay; run again to go on"


class LivenessMonitor:
    """Monitors the other ranks from a thread of its own, from its construction to `farewell`."""

    def __init__(self, rank: Rank, store: Store) -> None:
        self._rank = rank
        # a connection serves one thread at a time, and the main thread may wait long on its own one
        self._store: Store = store.clone()  # type: ignore[attr-defined]
        self._store.set(f"process/{rank.rank}", json.dumps([os.getpid(), host()]))
        self._hosts = {0: self._process(0)[1]}
        self._siblings: dict[int, int] = {}
        for sibling in rank.siblings:
            pid, self._hosts[sibling] = self._process(sibling)
            if sibling != rank.rank:
                # a sibling in another container cannot be seen; then only missing heartbeats show its end
                with suppress(OSError):
                    self._siblings[os.pidfd_open(pid)] = sibling
        self._beats = {node: (0, time.monotonic()) for node in range(rank.machine.nodes)}
        self._declared = False
        self._waker = os.eventfd(0)
        self._thread = threading.Thread(target=self._monitor, name="liveness", daemon=True)
        self._thread.start()

    def _process(self, rank: int) -> tuple[int, str]:
        pid, name = json.loads(self._store.get(f"process/{rank}"))
        return pid, name

    def declare(self, error: BaseException) -> None:
        """Publish why this rank ends, unless another rank has published a verdict before."""
        self._declared = True
        self._publish(f"{self._name(self._rank.rank)} failed: {type(error).__name__}: {error}")
        if self._rank.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
            # the store ends with this process
            with suppress(dist.DistError):
                self._store.wait([f"acknowledged/{rank}" for rank in range(1, self._rank.machine.ranks)], ACKNOWLEDGED)

    def wait_for_verdict(self) -> None:
        """Wait after a failed communication; if another rank is to blame, this process ends here with its name."""
        self._thread.join(VERDICT_S)

    def farewell(self) -> None:
        """End this rank's work; rank 0 waits for all ranks, since the shared store may be its own."""
        self._store.set(f"done/{self._rank.rank}", "1")
        if self._rank.rank == 0:
            self._store.wait([f"done/{rank}" for rank in range(self._rank.machine.ranks)], FAREWELL)
        os.eventfd_write(self._waker, 1)
        self._thread.join()

    def _monitor(self) -> None:
        poller = select.poll()
        for descriptor in (self._waker, *self._siblings):
            poller.register(descriptor, select.POLLIN)
        while True:
            ended = [descriptor for descriptor, _ in poller.poll(LOOK_EVERY_MS)]
            if self._waker in ended:
                return
            try:
                for descriptor in ended:
                    poller.unregister(descriptor)
                    self._sibling_ended(self._siblings[descriptor])
                self._beat()
                verdict = self._store.get("dead").decode() if self._store.check(["dead"]) else ""
            except dist.DistError:
                # the keeper of the store is gone: rank 0 itself under srun, else the torchrun of its node
                gone = [self._siblings[descriptor] for descriptor in ended]
                verdict = f"{self._name(gone[0] if gone else 0)} died, or its node did"
            if verdict and not self._declared:
                self._end(verdict)
                return

    def _sibling_ended(self, rank: int) -> None:
        if not self._store.check([f"done/{rank}"]):
            self._publish(f"{self._name(rank)} died")

    def _beat(self) -> None:
        if self._rank.local_rank == 0:
            self._store.add(f"beat/{self._rank.node}", 1)
        if self._rank.rank != 0:
            return
        now = time.monotonic()
        for node, (beats, since) in self._beats.items():
            heard = self._store.add(f"beat/{node}", 0)
            if heard != beats:
                self._beats[node] = (heard, now)
            elif now - since > NODE_SILENT_S:
                first = node * self._rank.machine.gpus_per_node
                if not self._store.check([f"done/{first}"]):
                    self._publish(f"{self._name(first)}, or its node, fell silent")

    def _publish(self, verdict: str) -> None:
        self._store.compare_set("dead", "", verdict)

    def _name(self, rank: int) -> str:
        if rank not in self._hosts:
            self._hosts[rank] = self._process(rank)[1]
        return f"rank {rank} on {self._hosts[rank]}"

    def _end(self, verdict: str) -> None:
        text = f"{verdict}; {KEPT}"
        report(text)
        with suppress(dist.DistError):
            self._store.set(f"acknowledged/{self._rank.rank}", "1")
        print(f"error: rank {self._rank.rank} stops: {text}", file=sys.stderr, flush=True)
        # the main thread may wait in a collective that nothing ends
        os._exit(1)


def report(text: str) -> None:
    """Write the cause into the error file of torchrun, if it started this rank."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path:
        details = {"py_callstack": text, "timestamp": str(int(time.time()))}
        Path(path).write_text(json.dumps({"message": {"message": f"{RELAYED}{text}", "extraInfo": details}}))
