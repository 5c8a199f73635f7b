"""The paired bootstrap, by sacrebleu."""

from latentalign.reports.paper.significance import paired_bootstrap
from tests.translation.tiny import TARGETS

REFERENCES = TARGETS * 4


def test_a_system_that_is_always_better_is_significant_and_an_equal_one_is_not():
    worse = [" ".join(reversed(text.split())) for text in REFERENCES]
    tests = paired_bootstrap(worse, {"same": worse, "perfect": REFERENCES}, REFERENCES, samples=200)
    same, perfect = tests
    assert (same["system"], same["difference"]) == ("same", 0.0)
    assert same["p"] > 0.5
    assert perfect["bleu"] == 100.0
    assert perfect["difference"] > 50
    assert perfect["p"] < 0.01
    nothing = [""] * len(REFERENCES)
    (tie,) = paired_bootstrap(nothing, {"other": ["x"] * len(REFERENCES)}, REFERENCES, samples=50)
    assert (tie["bleu"], tie["p"]) == (0.0, 1.0)
    assert tests == paired_bootstrap(worse, {"same": worse, "perfect": REFERENCES}, REFERENCES, samples=200)
