"""The command where the packages of its extra are not installed."""

import subprocess
import sys


def test_the_command_names_the_extra_that_it_needs():
    code = "import sys; sys.modules['rich'] = None; import mxq.tools.cli"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("mxq-quantize: ") and "pip install 'mxq[tools]'" in done.stderr
