"""Tags: a source may begin with one, as in `<ita> ciao`, and one model then serves several languages.

A tag is a piece of the source like its words: it is read by the encoder, and an alignment may point to it.
"""

import re
from collections.abc import Collection

_TAG = re.compile(r"<[^<>\s]+>")


def tagged(source: str, name: str) -> str:
    """A source with its tag in front."""
    return f"<{name}> {source}"


def split_tag(text: str, names: Collection[str]) -> tuple[list[str], str]:
    """The tag that a text begins with, if it is one of these, and the rest."""
    text = text.lstrip()
    found = _TAG.match(text) if names else None
    if found is None or found[0][1:-1] not in names:
        return [], text
    return [found[0]], text[found.end() :]
