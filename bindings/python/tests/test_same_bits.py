"""The example whose tokens have the same bits in any batch."""
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "python" / "same_bits.py"


def test_same_bits():
    said = subprocess.run([sys.executable, str(EXAMPLE), "1", "7", "33", "64", "130", "700"], capture_output=True, text=True, timeout=300)
    assert said.returncode == 0, said.stdout + said.stderr
    assert said.stdout == "935 tokens in 6 batches: 0 differ\n"
