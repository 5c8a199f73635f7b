"""What a message about a mistake has to look like."""

import re
from collections.abc import Callable

import pytest

# what is done wrong, the error's class, and words that its message must have in this order
Mistake = tuple[Callable[[], object], type[ValueError], list[str]]
# place: … expected …, received …; what to try
FORM = re.compile(r"^[^:\n]+: .*(expected|takes|knows|has) .*(, received .*)?; .+$")


def assert_explained(mistake: Mistake) -> None:
    action, error, words = mistake
    with pytest.raises(error, match=".*".join(re.escape(word) for word in words)) as caught:
        action()
    assert FORM.match(str(caught.value)), f"not in the form of the others: {caught.value}"
