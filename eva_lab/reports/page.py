"""The report page: one file that needs no network."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from eva_lab.experiments.summary import Row, SeedMean, Summary
from eva_lab.experiments.verdict import verdict
from eva_lab.reports.curves import curve_pictures
from eva_lab.reports.figures import measured
from eva_lab.reports.style import Picture, styled

_COLUMNS = (
    ("cost_usd", "cost, $", ",.0f", 1.0),
    ("cost_share", "of {baseline}, %", ".1f", 100.0),
    ("reference_share", "of the bound", ".3f", 1.0),
    ("revenue", "revenue, $", ",.0f", 1.0),
    ("share", "of most revenue", ".3f", 1.0),
    ("worse_off", "worse off than alone", ".0f", 1.0),
    ("least_gain", "least gain, %", ".1f", 100.0),
    ("borrowed_jobs", "jobs that borrowed", ".0f", 1.0),
    ("paid", "paid, $", ",.0f", 1.0),
    ("alpha_variance", "variance of alpha", ".2f", 1.0),
    ("jct_mean_h", "JCT, h", ".2f", 1.0),
    ("jct_p95_h", "JCT p95, h", ".1f", 1.0),
    ("total_h", "total, h", ".2f", 1.0),
    ("over_bound", "over least", ".3f", 1.0),
    ("moves_per_job", "moves / task", ".2f", 1.0),
    ("changed_rounds", "rounds that change, %", ".1f", 100.0),
    ("used", "GPUs held, %", ".1f", 100.0),
    ("nearly_full", "nearly full, %", ".1f", 100.0),
    ("idle_mean_h", "idle, h", ".2f", 1.0),
    ("norm_throughput_mean", "speed", ".3f", 1.0),
    ("tasks_per_instance", "tasks / instance", ".2f", 1.0),
    ("migrations_per_job", "moves / job", ".2f", 1.0),
    ("instances_launched", "instances", ",.0f", 1.0),
    ("full_share", "full, %", ".1f", 100.0),
    ("planning_mean_s", "planning, ms", ".1f", 1000.0),
    ("jct_median_h", "JCT p50, h", ".3f", 1.0),
    ("jct_p90_h", "JCT p90, h", ".2f", 1.0),
    ("jct_thin_small_h", "JCT thin small, h", ".3f", 1.0),
    ("jct_wide_small_h", "wide small", ".3f", 1.0),
    ("jct_thin_large_h", "thin large", ".3f", 1.0),
    ("jct_wide_large_h", "wide large", ".3f", 1.0),
    ("wait_share", "wait / task time", ".2f", 1.0),
    ("estimate_error_p50", "error, %", ".1f", 100.0),
    ("estimate_error_p90", "error p90, %", ".0f", 100.0),
    ("right_queue", "right queue, %", ".1f", 100.0),
    ("estimated_jobs", "estimated", ",.0f", 1.0),
    ("dag_jct_mean_h", "DAG JCT, h", ".2f", 1.0),
    ("dag_error_p50", "DAG error, %", ".1f", 100.0),
    ("dag_error_p90", "DAG error p90, %", ".0f", 100.0),
    ("short_wait_mean_s", "short wait, s", ",.2f", 1.0),
    ("short_wait_p50_s", "p50", ",.1f", 1.0),
    ("short_wait_p90_s", "p90", ",.1f", 1.0),
    ("short_wait_p99_s", "p99", ",.1f", 1.0),
    ("short_wait_max_s", "max", ",.0f", 1.0),
    ("long_wait_mean_s", "long wait, s", ",.1f", 1.0),
    ("transients_mean", "transient servers", ",.1f", 1.0),
    ("transients_peak", "peak", ",.0f", 1.0),
    ("transients_normalised", "r-normalised", ",.2f", 1.0),
    ("saved_share", "saved, %", ".1f", 100.0),
    ("transient_life_mean_h", "life, h", ".2f", 1.0),
    ("transient_life_max_h", "longest, h", ".1f", 1.0),
    ("reruns", "reruns", ",.0f", 1.0),
)
_PARTITION_COLUMNS = (
    ("jobs", "jobs", ",.0f"),
    ("cost_usd", "cost, $", ",.0f"),
    ("jct_mean_h", "JCT, h", ".2f"),
    ("idle_mean_h", "idle, h", ".2f"),
)

_OF_TENANTS = (
    ("jobs", "jobs", ",.0f"),
    ("cost_usd", "cost, $", ",.2f"),
    ("jct_mean_h", "JCT, h", ".2f"),
    ("idle_mean_h", "idle, h", ".3f"),
)
_OF_QUOTAS = (
    ("value_usd", "value, $", ",.2f"),
    ("gain_usd", "gain, $", ",.2f"),
    ("alpha", "alpha", ".3f"),
)
_FAIR = (
    "Value is what a tenant's jobs were worth when they succeeded, gain that and its income less "
    "its payments. Alpha is its part of all gains over its part of all quotas; 1 is fair."
)

_WORTHY, _ON_A_PHONE = 7, 2
"""Columns of the first table, and of it on a phone; all of them are in the second one."""
_CSS = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 78rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: .3rem; } h2 { font-size: 1.2rem; margin: 2.2rem 0 .3rem; }
p { max-width: 46rem; } .note { color: #555; font-size: .9rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .8rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #ddd;
  white-space: nowrap; }
th { text-align: right; border-bottom: 2px solid #888; } .name { text-align: left;
  white-space: normal; overflow-wrap: anywhere; }
@media (max-width: 40rem) { .wide:not(details .wide) .more { display: none; } }
summary { cursor: pointer; margin: .8rem 0; }
figure { margin: 0; max-width: 62rem; }
figure svg { width: 100%; height: auto; } .ci { color: #777; }
tr.first td { border-top: 2px solid #bbb; }
"""


def write_report(summary: Summary, folder: Path) -> Path:
    """Write ``report.html`` and a PNG of each figure.

    Args:
        summary: The summary, with at least one row.
        folder: Directory, which is created if need be.

    Returns:
        The page.

    Raises:
        OSError: A file cannot be written.
    """
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    with styled():
        pictures = [*measured(summary), *curve_pictures(summary)]
        for picture in pictures:
            picture.figure.savefig(figures / f"{picture.name}.png", dpi=150)
        page = _page(summary, pictures)
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def _page(summary: Summary, pictures: Sequence[Picture]) -> str:
    experiment = summary.plan.experiment
    title = escape(experiment.title or experiment.name)
    sections = "\n".join(_section(picture) for picture in pictures)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{_CSS}</style>
</head>
<body>
<h1>{title}</h1>
{_paragraphs(experiment.text)}
{_results(summary)}
<p class="note">{_notes(summary)}</p>
<h2>Figures of each policy</h2>
{_tables(summary)}
{_speed_ups(summary)}
{_partitions(summary)}
{_tenants(summary)}{sections}
</body>
</html>
"""


def _paragraphs(text: str) -> str:
    return "\n".join(f"<p>{escape(part)}</p>" for part in text.split("\n\n") if part.strip())


def _notes(summary: Summary) -> str:
    experiment = summary.plan.experiment
    seeds = ", ".join(map(str, experiment.seeds))
    notes = [
        f"Accounting of moves: {experiment.accounting}. Seeds: {seeds}.",
        "Means over seeds; ± is half of the 95 % interval of confidence (Student).",
        "Planning time is real time of this machine, all other times are simulated.",
    ]
    if summary.missing:
        notes.append(f"<b>{summary.missing} runs are missing.</b>")
    if len(summary.versions) > 1:
        notes.append(
            f"<b>Results of {len(summary.versions)} versions of the code are mixed</b>; "
            "<code>--fresh</code> repeats all runs."
        )
    return " ".join(notes)


def _results(summary: Summary) -> str:
    """Results of the experiment, in a list."""
    said = verdict(summary)
    if not said:
        return ""
    entries = "\n".join(f"<li>{escape(sentence)}</li>" for sentence in said)
    pairs = "Pairs are runs on the same trace." if any(row.pairs for row in summary.rows) else ""
    return f'<h2>Result</h2>\n<ul>\n{entries}\n</ul>\n<p class="note">{pairs}</p>'


def _tables(summary: Summary) -> str:
    """The first figures, which fit a page, and all of them behind a line that opens."""
    columns = [
        column for column in _COLUMNS if any(column[0] in row.figures for row in summary.rows)
    ]
    short = f'<div class="wide">{_table(summary, columns[:_WORTHY])}</div>'
    if len(columns) <= _WORTHY:
        return short
    return f"""{short}
<details><summary>All {len(columns)} figures</summary>
<div class="wide">{_table(summary, columns)}</div></details>"""


def _table(summary: Summary, chosen: Sequence[tuple[str, str, str, float]]) -> str:
    experiment = summary.plan.experiment
    columns = [
        (key, name.format(baseline=escape(experiment.baseline)), form, factor)
        for key, name, form, factor in chosen
    ]
    varied = [key.rpartition(".")[2] for key in experiment.vary]
    head = "".join(f'<th class="name">{escape(name)}</th>' for name in ("trace", *varied, "policy"))
    head += "".join(
        f"<th{_more(number)}>{name}</th>" for number, (_, name, _, _) in enumerate(columns)
    )
    lines = []
    last = None
    for row in summary.rows:
        first = last is not None and last != (row.trace, row.values)
        last = (row.trace, row.values)
        names = (row.trace, *(str(value) for _, value in row.values), row.label)
        cells = "".join(f'<td class="name">{escape(name)}</td>' for name in names)
        cells += "".join(
            _cell(row, key, form, factor, _more(number))
            for number, (key, _, form, factor) in enumerate(columns)
        )
        lines.append(f"<tr{' class=first' if first else ''}>{cells}</tr>")
    body = "\n".join(lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


def _speed_ups(summary: Summary) -> str:
    """How much longer jobs take under each other policy; empty unless the cluster is fixed."""
    rows = [row for row in summary.rows if row.speed_ups]
    if not rows:
        return ""
    experiment = summary.plan.experiment
    varied = [key.rpartition(".")[2] for key in experiment.vary]
    head = "".join(f'<th class="name">{escape(name)}</th>' for name in ("trace", *varied, "policy"))
    head += "".join(f"<th>over {escape(name)}</th>" for name in experiment.labels)
    lines = []
    for row in rows:
        names = (row.trace, *(str(value) for _, value in row.values), row.label)
        cells = "".join(f'<td class="name">{escape(name)}</td>' for name in names)
        for name in experiment.labels:
            speed_up = row.speed_ups.get(name)
            cells += (
                f"<td>{'-' if speed_up is None else ''.join(_number(speed_up, '.2f', 1.0))}</td>"
            )
        lines.append(f"<tr>{cells}</tr>")
    body = "\n".join(lines)
    return f"""<h2>Speed-ups</h2>
<p class="note">Mean completion time of jobs under the column's policy over that under the row's, on
the same trace.</p>
<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>
{body}
</tbody></table></div>"""


def _partitions(summary: Summary) -> str:
    """The figures of each partition; empty if the cluster is not divided."""
    names = list(summary.plan.experiment.partitions)
    if not names:
        return ""
    varied = [key.rpartition(".")[2] for key in summary.plan.experiment.vary]
    titles = ("trace", *varied, "policy", "partition")
    head = "".join(f'<th class="name">{escape(name)}</th>' for name in titles)
    head += "".join(f"<th>{name}</th>" for _, name, _ in _PARTITION_COLUMNS)
    lines = []
    for row in summary.rows:
        for number, name in enumerate(names):
            texts = (row.trace, *(str(value) for _, value in row.values), row.label, name)
            cells = "".join(f'<td class="name">{escape(text)}</td>' for text in texts)
            cells += "".join(
                _cell(row, f"{name}/{key}", form, 1) for key, _, form in _PARTITION_COLUMNS
            )
            lines.append(f"<tr{'' if number else ' class=first'}>{cells}</tr>")
    body = "\n".join(lines)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"
    return f'<h2>Figures of each partition</h2>\n<div class="wide">{table}</div>'


def _tenants(summary: Summary) -> str:
    """Results of each tenant's jobs; empty where no job has one."""
    lines = []
    keys = {key for row in summary.rows for of in row.tenants.values() for key in of}
    quotas = "alpha" in keys
    columns = [
        column for column in (*_OF_TENANTS, *(_OF_QUOTAS if quotas else ())) if column[0] in keys
    ]
    for row in summary.rows:
        for number, (tenant, of) in enumerate(row.tenants.items()):
            names = (row.trace, *(str(value) for _, value in row.values), row.label, tenant)
            cells = "".join(f'<td class="name">{escape(name)}</td>' for name in names)
            for key, _, form in columns:
                estimate = of.get(key)
                cells += (
                    f"<td>{'-' if estimate is None else ''.join(_number(estimate, form, 1.0))}</td>"
                )
            lines.append(f"<tr{'' if number else ' class=first'}>{cells}</tr>")
    if not lines:
        return ""
    varied = [key.rpartition(".")[2] for key in summary.plan.experiment.vary]
    named = ("trace", *varied, "policy", "tenant")
    head = "".join(f'<th class="name">{escape(name)}</th>' for name in named)
    head += "".join(f"<th>{name}</th>" for _, name, _ in columns)
    body = "\n".join(lines)
    return f"""<h2>Figures of each tenant</h2>
<p class="note">What is idle is nobody's, so the costs of tenants do not add up to the bill.
{_FAIR if quotas else ""}</p>
<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>
{body}
</tbody></table></div>
"""


def _more(number: int) -> str:
    """The attribute of a column that a phone leaves out of the short table."""
    return ' class="more"' if number >= _ON_A_PHONE else ""


def _cell(row: Row, key: str, form: str, factor: float, attribute: str = "") -> str:
    estimate = row.figures.get(key)
    text = "-" if estimate is None else "".join(_number(estimate, form, factor))
    return f"<td{attribute}>{text}</td>"


def _number(one: SeedMean, form: str, factor: float) -> Iterator[str]:
    yield f"{one.mean * factor:{form}}"
    if one.half is not None:
        yield f' <span class="ci">± {one.half * factor:{form}}</span>'


def _section(picture: Picture) -> str:
    buffer = io.StringIO()
    picture.figure.savefig(buffer, format="svg", metadata={"Date": None})
    drawing = buffer.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    # Drawings share the page's ids, so each gets its own prefix.
    for mark in ('id="', "url(#", 'xlink:href="#'):
        drawing = drawing.replace(mark, f"{mark}{picture.name}-")
    label = escape(f"{picture.title}. {picture.caption}", quote=True)
    drawing = drawing.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    return f"""<section id="{picture.name}">
<h2>{escape(picture.title)}</h2>
<p>{escape(picture.caption)}</p>
<figure>{drawing}</figure>
</section>"""
