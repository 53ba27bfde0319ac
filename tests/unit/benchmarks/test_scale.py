"""The benchmark of scale: its tables, the watching of processes, the line and the page; nothing here is measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from benchmarks.scale import tables, workers
from benchmarks.scale.figures import Figure, append, figure, fit_line, read
from benchmarks.scale.page import NOT_YET, render
from benchmarks.scale.tables import Table, valued
from benchmarks.scale.targets import TARGETS
from benchmarks.scale.watch import Limits, watch
from marginweave.configuration.load import parse_configuration

SMALL = {"sex": ("", "f", "m"), "region": ("north", "south", "west", "east", "middle")}


def small() -> Table:
    return Table(
        labels=SMALL, draw=lambda rng, rows: [rng.integers(0, len(v), rows) for v in SMALL.values()]
    )


def test_blocks_and_parts_make_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parquet parts and CSV hold the same rows, as many as were asked for, and again the same."""
    monkeypatch.setattr(tables, "BLOCK", 7)
    parts = small().write_parquet(tmp_path / "parts", 61)
    assert [pq.ParquetFile(p).metadata.num_rows for p in sorted(parts.iterdir())] == [28, 28, 5]
    text = pyarrow.csv.read_csv(small().write_csv(tmp_path / "table.csv", 61))
    whole = pq.read_table(parts)
    assert whole.equals(pq.read_table(small().write_parquet(tmp_path / "again", 61)))
    assert whole["region"].to_pylist() == text["region"].to_pylist()
    assert len(set(whole["region"].to_pylist())) == 5


def test_configurations_are_accepted() -> None:
    """Missing values are no values; the length is the one asked for."""
    made = parse_configuration(small().configuration(Path("table.csv"), 1000, tables.seeded(2)))
    assert made.reporting_length == 2
    assert [a.labels for a in made.attributes] == [("f", "m"), SMALL["region"]]


def test_values_follow_zipf_and_depend_on_each_other() -> None:
    rng = np.random.default_rng(1)
    codes = valued().draw(rng, 20_000)
    assert len(codes) == 10
    first = np.bincount(codes[0], minlength=5000)
    assert first[0] > 1.8 * first[1] > 0
    assert first[1:].sum() > first[0]
    assert np.mean(codes[3] == (codes[0] + 3) % 5000) > 0.45


def test_a_command_is_watched(tmp_path: Path) -> None:
    """Memory, CPU, and a stage for each line that says so; other lines are passed over."""
    program = """
import json, time
print("hello", flush=True)
held = bytearray(b"x") * 200_000_000
end = time.process_time() + 0.3
while time.process_time() < end: pass
print(json.dumps({"event": "stage", "stage": "first", "charged": []}), flush=True)
print(json.dumps({"event": "finished"}))
"""
    seen = watch([sys.executable, "-c", program], {}, tmp_path)
    assert seen.ended == ""
    assert [stage.name for stage in seen.stages] == ["first"]
    assert 200 < seen.peak < 400
    assert 0.2 < seen.cpu < seen.wall + 0.1
    assert (seen.server_cpu, seen.server_peak, seen.start) == (0, 0, 0)


def test_what_fails_or_grows_is_told(tmp_path: Path) -> None:
    failed = watch(
        [sys.executable, "-c", "import sys; sys.exit('epsilon (-1) must be positive')"],
        {},
        tmp_path,
    )
    assert failed.ended == "exit code 1: epsilon (-1) must be positive"
    line = """print('{"event": "stage", "stage": "encode"}', flush=True)"""
    program = f"import time; {line}; time.sleep(0.5); held = bytearray(b'x') * 300_000_000; time.sleep(60)"
    grown = watch([sys.executable, "-c", program], {}, tmp_path, Limits(megabytes=100))
    assert grown.ended == "stopped at 100 MB, after encode"
    late = watch(
        [sys.executable, "-c", "import time; time.sleep(60)"], {}, tmp_path, Limits(seconds=0.2)
    )
    assert late.ended.startswith("stopped after")
    busy = watch([sys.executable, "-c", "while True: pass"], {}, tmp_path, Limits(cpu=0.3))
    assert busy.ended == "stopped after 0 CPU s"


def test_the_line_is_of_relative_distance() -> None:
    """Exact points leave nothing; of three points the far one does not decide alone."""
    exact = fit_line([10, 1000, 10**7], [5 + 2e-3 * n for n in (10, 1000, 10**7)])
    assert exact is not None
    assert exact.fixed == pytest.approx(5)
    assert exact.at(10**8) == pytest.approx(5 + 2e5)
    assert np.allclose(exact.residuals, 0)
    bent = fit_line([1, 2, 1000], [1.0, 2.0, 1100.0])
    assert bent is not None
    assert max(map(abs, bent.residuals)) < 0.1
    assert fit_line([1, 2], [1.0, 2.0]) is None


def test_figures_are_kept_and_the_last_one_counts(tmp_path: Path) -> None:
    path = tmp_path / "figures.jsonl"
    assert read(path) == []
    for wall in (3.0, 2.0):
        append(path, run("adult", 10_000, wall=wall))
    (kept,) = read(path)
    assert kept["wall"] == 2.0


def test_the_page_tells_wins_losses_and_gaps() -> None:
    """Nothing measured is said to be so; a slow run is a loss, a failed one says why, and every target stands there."""
    empty = render([], "all of it")
    assert empty.count(NOT_YET) == len(TARGETS)
    figures = [
        run("adult", 10_000, wall=20.5, peak=450.0),
        *(
            run("adult", n, wall=20 + n / 2e4, peak=600 + n / 1e6)
            for n in (1_000_000, 5_000_000, 20_000_000)
        ),
        run("wide", 1_000_000, ended="exit code 1: no room"),
        run("check", 20_000_000, wall=31.2, peak=241.0),
        run("check-csv", 1_000_000, wall=4.7, peak=346.0),
        figure("pac-synth", 10_000, 14, 3, ours=taken(1.0, 50), theirs=taken(31.0, 240)),
    ]
    page = render(figures, "all of it")
    assert "| CPU beside pac-synth, 10k rows | 30 times less | 31.0 x | yes |" in page
    assert "| memory beside pac-synth, 10k rows | 5 times less | 4.8 x | **no** |" in page
    assert (
        "| 1M x 14, k-tuples, R = 3 | 20 s | 62 s beyond the start of its server, 0.20 GB | **no** |"
        in page
    )
    assert "| 1M x 60, R = 2 | 2 GB | exit code 1: no room | **no** |" in page
    assert "| 20M x 14 from Parquet, `check` | 30 s, 500 MB | 31.2 s, 241 MB | **no** |" in page
    assert "| 1M x 14 from CSV, `check` | 10 s, 500 MB | 4.7 s, 346 MB | yes |" in page
    assert "| check" not in page
    assert "| wall | 12.0 s | 50.00 s | +0%, +0%, +0%, +0% | 5,012 ± 0 s |" in page
    # of full blocks
    assert "| peak beyond imports | 200.0 MB | 1.00 MB | +0%, +0%, +0% | 300 ± 0 MB |" in page


def run(name: str, rows: int, **changes: Any) -> Figure:
    stage = {"name": "validate", "wall": 1.0, "cpu": 1.0, "peak": 500.0}
    numbers = {
        "wall": 10.0, "cpu": 9.0, "peak": 600.0, "start": 8.0, "server_cpu": 7.0, "server_peak": 250.0, "stages": [stage],
        "ended": "", "imports": 400.0, "combinations": 17, "records": rows,
    }  # fmt: skip
    return figure(name, rows, 14, 3, **numbers | changes)


def taken(cpu: float, beyond: float) -> dict[str, Any]:
    return {
        "convert": 0.1,
        "aggregate": cpu / 2,
        "synthesize": cpu / 2,
        "cpu": cpu,
        "records": 10_000,
        "beyond": beyond,
    }


def test_the_model_of_workers_finds_what_it_was_made_from() -> None:
    """Three times that follow the law exactly; and terms that noise makes negative are 0."""
    law = workers.Model(fixed=0.2, a_record=2e-6, bytes_a_second=4e8)
    of = law.seconds
    times = workers.Times(
        few=of(1000, 1, 10_000), cells=of(1000, 1, 10**6), records=of(10**6, 1, 10**6)
    )
    found = workers.fit(times, 10**6, 10_000, 10**6)
    assert found.seconds(10**7, 2, 10**5) == pytest.approx(of(10**7, 2, 10**5))
    assert workers.fit(workers.Times(few=2.0, cells=1.0, records=0.5), 10**6, 10, 20).a_record == 0
