"""The columns of every table, from a study's content."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from latentalign.reports.paper.table import (
    NOTHING,
    Column,
    Row,
    Table,
    mean_column,
    name_column,
    published_column,
)

Content = Mapping[str, Any]
Layout = Callable[[Content], list[Table]]
_PAPER = "On the right the paper's figures (IWSLT-14 German to English): another corpus, so only the order compares."


def _estimator(row: Row) -> str:
    """The estimator with what sets it apart."""
    if row.get("estimator") in (None, "none"):
        return NOTHING
    parts = [str(row["estimator"])]
    if row.get("samples"):
        parts.append(f"{row['samples']} sample{'s' if row['samples'] > 1 else ''}")
    if row.get("baseline") not in (None, "soft"):
        parts.append(str(row["baseline"]))
    if row.get("alignment"):
        parts.append(str(row["alignment"]))
    if row.get("posterior"):
        parts.append(str(row["posterior"]))
    return ", ".join(parts)


_NAMES = (name_column("objective", "objective"), Column("estimator", _estimator, is_number=False))
_RESULTS = (
    mean_column("PPL", "ppl"),
    mean_column("BLEU", "bleu"),
    mean_column("prior entropy", "prior_entropy"),
)
_INFERENCE = name_column("inference", "inference")
_CHRF = mean_column("chrF", "chrf", 1)
_GAP = Column("gap of the bound", lambda row: _gap(row))
_SEEDS = name_column("seeds", "seeds")


def _table1(content: Content) -> list[Table]:
    columns = (
        *_NAMES, _INFERENCE, *_RESULTS, _CHRF, mean_column("KL", "kl"), _GAP,
        mean_column("minutes", "minutes", 1), _SEEDS,
        published_column("paper: PPL", "ppl"), published_column("paper: BLEU", "bleu"),
        published_column("paper: entropy", "prior_entropy"),
    )  # fmt: skip
    caption = "Table 1. Test perplexity and BLEU of every objective, mean ± deviation over seeds"
    notes = (_PAPER, "Gap of the bound: log-likelihood − ELBO on the test set, nats a token, after training.")
    main = Table(caption, columns, tuple(content["summary"]), notes)
    return [
        main,
        *significance_table(content),
        *overtakings_table(content),
        claims_table(content["claims"]),
    ]


def _table2(content: Content) -> list[Table]:
    columns = (
        *_NAMES, _INFERENCE, mean_column("PPL", "ppl"), mean_column("BLEU", "bleu"), _SEEDS,
        published_column("paper: PPL", "ppl"), published_column("paper: BLEU", "bleu"),
    )  # fmt: skip
    main = Table("Table 2. All positions at test time against the five likeliest", columns,
                 tuple(content["summary"]), (_PAPER,))  # fmt: skip
    return [main, curve_table(content.get("curve", [])), claims_table(content["claims"])]


def _table3(content: Content) -> list[Table]:
    columns = (
        *_NAMES, _INFERENCE, *_RESULTS, _CHRF, _GAP, mean_column("minutes", "minutes", 1),
        mean_column("tokens per CPU second", "tokens_per_second", 0),
        mean_column("peak memory, MB", "peak_memory_mb", 0), _SEEDS,
        published_column("paper: PPL", "ppl"), published_column("paper: BLEU", "bleu"),
    )  # fmt: skip
    notes = (
        _PAPER,
        "Minutes are those of the whole training, warm-up included, as the clock went. Tokens per second of processor "
        "time and peak memory are of a few steps of the last phase in a process of its own, one thread.",
    )
    main = Table("Table 3. Ways to train the variational model", columns, tuple(content["summary"]), notes)
    return [main, *significance_table(content), claims_table(content["claims"])]


def _figure3(content: Content) -> list[Table]:
    columns = (
        name_column("contrast", "contrast"), name_column("rank", "rank"), name_column("test line", "line"),
        mean_column("divergence", "divergence", 3), mean_column("mean over the test set", "mean_divergence", 3),
        name_column("picture", "picture"),
    )  # fmt: skip
    return [
        Table("Figure 3. Where alignments differ most", columns, tuple(content["rows"]), (content["rule"],))
    ]


def _gradients(content: Content) -> list[Table]:
    columns = (
        name_column("point", "point"), name_column("of", "target"), name_column("estimator", "estimator"),
        name_column("parameters", "parameters"), _significant("relative variance", "relative_variance"),
        Column("bias", _bias), _significant("cosine", "cosine"),
    )  # fmt: skip
    notes = (
        f"Over {content['draws']} draws on {content['pairs']} test pairs, without dropout: E‖g − E g‖² / ‖exact‖², "
        "‖E g − exact‖ / ‖exact‖ (below a bound where so few draws cannot tell it from 0), and the mean cosine of a "
        "draw with the exact gradient.",
    )
    quality = Table(
        "Gradients of estimators against the exact gradient", columns, tuple(content["rows"]), notes
    )
    bounds = (name_column("point", "point"), name_column("bound", "bound"), _significant("gap, nats", "gap"))
    gaps = Table("How tight bounds are: exact log marginal − bound, nats an output", bounds,
                 tuple(content["tightness"]))  # fmt: skip
    return [quality, gaps]


def _bias(row: Row) -> str:
    limit = 2 * row["bias_noise"]
    return f"< {limit:.2g}" if row["bias"] < limit and limit > 1e-6 else f"{row['bias']:.2g}"


def _significant(head: str, key: str) -> Column:
    """A number of any size by its three leading digits."""

    def text(row: Row) -> str:
        value = row.get(key)
        return NOTHING if value is None else f"{0.0 if abs(value) < 1e-6 else value:.3g}"

    return Column(head, text)


def significance_table(content: Content) -> list[Table]:
    """The paired tests of BLEU, if there were any."""
    tests = content.get("significance") or []
    columns = (
        name_column("seed", "seed"), name_column("system", "system"), name_column("against", "baseline"),
        mean_column("difference", "difference"), mean_column("p", "p", 3),
    )  # fmt: skip
    note = (f"{tests[0]['samples']} resampled test sets (sacrebleu).",) if tests else ()
    return [Table("BLEU by paired bootstrap", columns, tuple(tests), note)] if tests else []


def overtakings_table(content: Content) -> list[Table]:
    """From which update on a row, or its bound, is below the marginal; if validation was kept."""
    columns = (
        name_column("row", "row"), name_column("seed", "seed"),
        Column("likelihood better from update", lambda row: _update(row["likelihood"])),
        Column("bound better from update", lambda row: _update(row["bound"])),
        Column("of", lambda row: str(row["last"])), mean_column("gap at the end", "gap", 3),
    )  # fmt: skip
    caption = "When a row overtakes the marginal of its seed, on validation"
    rows = tuple(content.get("overtakings") or ())
    note = "The first update after which it stays below the marginal's NLL; “never” if it is not below at the end."
    return [Table(caption, columns, rows, (note,))] if rows else []


def _update(step: int | None) -> str:
    return "never" if step is None else str(step)


def _gap(row: Row) -> str:
    return f"{-row['nll'] - row['elbo']:.3f}" if "elbo" in row else NOTHING


def curve_table(curve: Sequence[Row]) -> Table:
    """The points of the curve over K, a line a model and seed."""
    lines: dict[tuple[str, int], dict[str, Any]] = {}
    for point in curve:
        line = lines.setdefault((point["row"], point["seed"]), {"row": point["row"], "seed": point["seed"]})
        line[point["inference"]] = point["ppl"]
    names = list(dict.fromkeys(point["inference"] for point in curve))
    heads = [mean_column(name.replace("kmax:", "K = "), name) for name in names]
    columns = (name_column("row", "row"), name_column("seed", "seed"), *heads)
    return Table("Perplexity with the K likeliest positions", columns, tuple(lines.values()))


def claims_table(claims: Sequence[Row]) -> Table:
    """Whether our rows are in the paper's order."""
    columns = (
        name_column("the paper says", "claim"),
        Column("paper", lambda claim: _pair(claim["published"])),
        Column("ours", lambda claim: _pair(claim["ours"])),
        Column("agrees", _verdict, is_number=False, is_strong=lambda claim: claim["agrees"] is False),
    )
    return Table("Where the order agrees with the paper", columns, tuple(claims))


def _pair(values: Sequence[float | None]) -> str:
    return " : ".join(NOTHING if value is None else f"{value:.2f}" for value in values)


def _verdict(claim: Row) -> str:
    if claim["agrees"] is None:
        return "not measured"
    word = "yes" if claim["agrees"] else "no"
    return word if claim["clear"] is not False else f"{word}, within what seeds differ by"


LAYOUTS: dict[str, Layout] = {
    "table1": _table1,
    "table2": _table2,
    "table3": _table3,
    "figure3": _figure3,
    "gradients": _gradients,
}
