"""The layer of experts of examples/python, in one process and in several over gloo."""
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch.distributed")
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "python" / "expert_parallel.py"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_expert_parallel(ranks):
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks),
              "LOCAL_WORLD_SIZE": str(ranks), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    processes = [subprocess.Popen([sys.executable, str(EXAMPLE)], env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(ranks)]
    try:
        said = [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * ranks, "\n".join(said)
    for rank, text in enumerate(said):
        line = re.search(rf"rank {rank} of {ranks} on cpu: {96 + 32 * rank} tokens, the bits of one process, (.*) dB", text)
        assert line and float(line[1]) > 24
