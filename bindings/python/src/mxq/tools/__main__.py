"""python -m mxq.tools is mxq-quantize."""

import sys

from .cli import main

sys.exit(main())
