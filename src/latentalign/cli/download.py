"""`download`."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer


def download(
    name: Annotated[str, typer.Argument(metavar="NAME", help="multi30k, iwslt14, wmt17, babi, g2p or vqa2.")],
    to: Annotated[Path | None, typer.Option(help="The folder; default data/NAME.")] = None,
    mirror: Annotated[
        str | None, typer.Option(help="Get the same files from this address instead of their own.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Get a public data set into a folder: checked, unpacked, ready for its recipes."""
    from latentalign.download import SUMS, fetch, find_dataset

    folder = to or Path("data") / name
    print(f"{find_dataset(name).title} -> {folder}", file=sys.stderr)
    fetched = fetch(name, folder, mirror=mirror)
    if fetched.unverified:
        print(
            f"No published checksum is known for {', '.join(fetched.unverified)}: what arrived was not verified. "
            f"Its sum was recorded in {folder / SUMS} and is expected from now on.",
            file=sys.stderr,
        )
    if fetched.by_hand:
        print(fetched.by_hand, file=sys.stderr)
    paths = [str(path) for path in fetched.paths]
    if json_output:
        print(
            json.dumps(
                {"name": name, "folder": str(folder), "files": paths, "unverified": fetched.unverified}
            )
        )
    else:
        print("\n".join(paths))
