"""One process of a sharded (FSDP2) run on the CPU: the monitor refuses, and the process does what it says."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from torch.distributed.fsdp import fully_shard

import attnlaw
from attnlaw.core.errors import InputError
from attnlaw.training import SpectralMonitor


def build() -> torch.nn.Module:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def main(rank: int, folder: Path) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2"}
    store = torch.distributed.FileStore(str(folder / "rendezvous"), 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    model = build()
    fully_shard(model)
    try:
        SpectralMonitor(model, folder / "run")
    except InputError as error:
        (folder / f"message{rank}").write_text(str(error))
        code = error.__notes__[0].partition(":\n")[2]
    os.chdir(folder)
    exec(code, {"torch": torch, "attnlaw": attnlaw, "model": model, "HEADS": 2, "step": 7})
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
