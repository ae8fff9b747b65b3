"""`python -m tests.fuzz TARGET [--runs N]`: coverage-guided fuzzing with atheris, in this process.

Ends with 0 after so many runs without a fault. A fault, an input that takes longer than five seconds and one that needs
more than a gigabyte end it with another code; the input is then printed in base64.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

TARGET_NAMES = ("frames", "invites", "manifests", "messages", "releases")
HANG_S, MEMORY_MB = 5, 1024


def main() -> None:
    """Fuzz one target; never returns."""
    options = build_parser().parse_args()
    import atheris

    # Ours is instrumented as it is imported; msgspec, numpy and cryptography are not Python that could be.
    with atheris.instrument_imports(include=["agent.link", "agent.update", "console.fleet", "shard_export.library"]):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[options.target]
    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(target.seeds()):
            (Path(folder) / f"seed-{number}").write_bytes(seed)
        kept = []
        if options.keep is not None:
            options.keep.mkdir(parents=True, exist_ok=True)
            kept = [str(options.keep)]
        limits = [f"-runs={options.runs}", f"-max_len={options.max_bytes}", f"-seed={options.seed}"]
        limits += [
            f"-timeout={HANG_S}",
            f"-rss_limit_mb={MEMORY_MB}",
            f"-artifact_prefix={folder}/",
            "-print_final_stats=1",
        ]
        atheris.Setup([sys.argv[0], *limits, *kept, folder], target.check)
        atheris.Fuzz()


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all arguments."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGET_NAMES)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--max-bytes", type=int, default=8192)
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    parser.add_argument("--keep", type=Path, help="where interesting inputs are kept and found again")
    return parser


if __name__ == "__main__":
    main()
