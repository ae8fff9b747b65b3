"""`python -m shard_export` is `fallow-export`."""

import sys

from shard_export.cli import main

sys.exit(main())
