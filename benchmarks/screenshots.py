"""Pictures of the inspector for the documentation.

    python -m benchmarks.screenshots DEMO/variational DEMO/soft MEMORY_RUN [--only NAME ...] [--to docs/images]
    python -m benchmarks.screenshots VQA_RUN --only inspector-image

Needs Debian's chromium and playwright. The runs are those of `latentalign demo`, any memory run, and a VQA run of
generated scenes.
"""

import argparse
import io
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from benchmarks.server import Server

SOURCE = "Dieser Vogel repariert den grünen roten Mantel heute gern nicht ."
TARGET = "This bird does not repair the green red coat gladly today ."
STORY = "Ada walked to the attic.\nBoris went to the market.\nAda picked up the map.\nAda ran to the library."
PAIR = {"view": "pair", "source": SOURCE, "target": TARGET}
# name -> (state of the page, width, height, colours)
SHOTS: dict[str, tuple[dict[str, Any], int, int, str]] = {
    "inspector-translate": ({"source": SOURCE}, 1000, 700, "light"),
    "inspector-pair": ({**PAIR, "row": 9, "mode": "kmax", "k": 1}, 1180, 900, "light"),
    "inspector-compare": ({**PAIR, "view": "compare"}, 1180, 800, "dark"),
    "inspector-phone": ({**PAIR, "view": "translate"}, 390, 844, "dark"),
    "inspector-story": (
        {"view": "ask", "story": STORY, "question": "Where is Ada?"},
        1000,
        700,
        "light",
    ),
    "inspector-image": ({"view": "ask", "question": "what colour is the triangle?"}, 1000, 700, "light"),
}


def wait_for_content(page: Page, name: str) -> None:
    """Until everything that the picture is about has been drawn."""
    if name == "inspector-story":
        page.wait_for_selector(".facts li:nth-child(2)")
    elif name == "inspector-image":
        page.wait_for_selector(".picture svg")
    else:
        page.wait_for_selector(".results svg")
    if name == "inspector-pair":
        page.wait_for_selector(".bar-row:nth-child(4)")
        page.locator(".maps svg").first.locator(".cell").nth(42).hover()
    if name == "inspector-translate":
        page.locator(".words.target .word").nth(4).hover()
    page.wait_for_timeout(500)


def write(path: Path, content: bytes) -> None:
    """A picture of few colours, so that the repository stays small."""
    image = Image.open(io.BytesIO(content)).convert("RGB").quantize(160, dither=Image.Dither.NONE)
    image.save(path, optimize=True)
    print(f"{path}: {path.stat().st_size // 1024} kB")


def main() -> None:
    """Take all pictures, or those named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--to", type=Path, default=Path("docs/images"))
    parser.add_argument("--only", nargs="*", choices=list(SHOTS), default=list(SHOTS))
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    server = Server(options.runs, batch=64, threads=1)
    try:
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            for name in options.only:
                state, width, height, colours = SHOTS[name]
                page = browser.new_page(
                    viewport={"width": width, "height": height},
                    color_scheme=colours,  # type: ignore[arg-type]
                )
                page.set_default_timeout(120_000)
                page.goto(f"{server.address}#{urlencode(state)}")
                wait_for_content(page, name)
                write(options.to / f"{name}.png", page.screenshot(full_page=name != "inspector-phone"))
                page.close()
            browser.close()
    finally:
        server.stop()


if __name__ == "__main__":
    main()
