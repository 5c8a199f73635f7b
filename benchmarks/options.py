"""Options that measurements on a folder of data share."""

import argparse
from pathlib import Path


def data_options(description: str | None, *, work: str, out: str) -> argparse.ArgumentParser:
    """--data, --work and --out; `description` is the module's own."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path(work))
    parser.add_argument("--out", type=Path, default=Path(out))
    return parser
