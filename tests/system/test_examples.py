"""The worked configurations and DPSyn's own files, released, and decoded into tables that the next release could read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml

from marginweave.configuration.columns import MeasuredColumn
from marginweave.configuration.execution import SourceFile
from marginweave.configuration.load import load_configuration
from marginweave.configuration.release import Configuration
from marginweave.schemas.source import source_contract
from marginweave.sources.source import TableSource
from tests.support.command_line import CommandLine
from tests.support.places import DATA, EXAMPLES, REPOSITORY

pytestmark = pytest.mark.system


def table(folder: str, name: str) -> Path:
    """A public test table, or a skip that says what to do."""
    path = DATA / folder / name
    if not path.exists():
        pytest.skip(
            f"{name} is not here; MARGINWEAVE_TEST_DATA names the folder of the test tables"
        )
    return path


def strict(configuration: Configuration) -> Configuration:
    """The same, but every value outside its declared domain breaks the contract of the raw table."""
    columns = {
        name: column.model_copy(update={"outside": "error"})
        if isinstance(column, MeasuredColumn) and getattr(column, "domain", "public") == "public"
        else column
        for name, column in configuration.columns.items()
    }
    return configuration.model_copy(update={"columns": columns})


def released(cli: CommandLine, config: Path, source: Path) -> Path:
    """The release folder of a run on an account of its own."""
    configuration = load_configuration(config)
    privacy = configuration.privacy
    cap = (
        "--epsilon",
        f"{privacy.epsilon}",
        "--delta",
        f"{privacy.delta}",
        "--unit",
        privacy.unit_key,
    )
    opened = cli("ledger", "open", configuration.dataset, *cap)
    assert opened.returncode == 0, opened.stderr
    result = cli("run", config, "--source", source, "--run", "first", timeout=600)
    assert result.returncode == 0, result.stderr
    return cli.home / "runs" / "first" / "release"


def check_table(release: Path, config: Path, rows: int) -> pd.DataFrame:
    """Names, order and number of the records; as CSV and as Parquet they meet the strict contract of the raw table."""
    configuration = load_configuration(config)
    records = pq.read_table(release / "synthetic.parquet")
    assert records.column_names == list(configuration.output_names)
    # |noise| > 12 sd has a probability below 1e-30; the sd at these epsilons is below 10
    assert abs(records.num_rows - rows) < 120
    contract = source_contract(strict(configuration))
    names = list(configuration.names)
    for name in ("synthetic.csv", "synthetic.parquet"):
        source = TableSource(str(release / name), SourceFile(file=name)).table(names)
        contract.check(source)
    frame: pd.DataFrame = records.to_pandas()
    return frame


@pytest.mark.long  # half a minute
def test_adult(marginweave: CommandLine) -> None:
    """Private bounds, and a column that is computed from another one: it agrees with it in every record."""
    source, config = table("adult", "adult_raw.csv"), EXAMPLES / "adult.yaml"
    frame = check_table(released(marginweave, config, source), config, 48842)
    mapping = yaml.safe_load(config.read_text())["structure"]["determined"][0]["mapping"]
    known = frame.dropna(subset=["education"])
    assert (known["education-num"].astype(str) == known["education"].map(mapping).astype(str)).all()
    assert frame["age"].between(17, 90).sum() + frame["age"].isna().sum() == len(frame)


@pytest.mark.long  # 31 columns in triples: its table is released below, from DPSyn's own files
def test_drug_deaths(marginweave: CommandLine) -> None:
    """A subject column, which is dropped, and both suites of expectations."""
    source, config = table("drug_deaths", "drug_deaths.csv"), EXAMPLES / "drug_deaths.yaml"
    frame = check_table(released(marginweave, config, source), config, 7634)
    assert len(frame.columns) == 31


@pytest.mark.long  # the same
def test_drug_deaths_by_dpsyn(marginweave: CommandLine) -> None:
    """Marginals instead of k-tuples: the same table, and the noisy marginals beside it."""
    source, config = table("drug_deaths", "drug_deaths.csv"), EXAMPLES / "drug_deaths_dpsyn.yaml"
    release = released(marginweave, config, source)
    frame = check_table(release, config, 7634)
    assert len(frame.columns) == 31
    assert len(json.loads((release / "privacy.json").read_text())["marginals"]) > 31


@pytest.mark.long  # half a minute
def test_ma2019(marginweave: CommandLine) -> None:
    """Numbers, codes, N and blank, a private domain, and a combination that cannot be: nobody below 15 is married."""
    source, config = table("ma2019", "ma2019.csv"), EXAMPLES / "ma2019.yaml"
    frame = check_table(released(marginweave, config, source), config, 7634)
    assert len(frame.columns) == 24
    assert not ((frame["AGEP"] < 15) & frame["MSP"].notna()).any()


@pytest.mark.long  # 31 columns; tests/unit/test_dpsyn_converter.py converts the same files
def test_dpsyn_files_as_they_are(marginweave: CommandLine) -> None:
    """parameters.json, column_datatypes.json and a data.yaml in its own words: converted, released, decoded."""
    cli, source = marginweave, table("drug_deaths", "drug_deaths.csv")
    binning = "identifier: ID\nnumerical_binning:\n  Age:\n    - 14\n    - 87\n    - 10\n"
    (cli.home / "data.yaml").write_text(
        binning + "grouping_attributes: {}\ndetermined_attributes: {}\n"
    )
    config = cli.home / "drug_deaths.yaml"
    script = [
        sys.executable,
        REPOSITORY / "deployments" / "converters" / "dpsyn.py",
        table("drug_deaths", "parameters.json"),
    ]
    files = [
        "--data",
        "data.yaml",
        "--datatypes",
        table("drug_deaths", "column_datatypes.json"),
        "--source",
        source,
    ]
    public = ["--public", "the challenge's parameters.json"]
    done = subprocess.run(
        [*script, *files, *public], cwd=cli.home, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    configuration = load_configuration(config)
    assert (configuration.privacy.epsilon, configuration.privacy.unit_key) == (10, "subject:ID")
    release = released(cli, config, source)
    frame = check_table(release, config, 7634)
    ages: Any = frame["Age"].dropna()
    assert ages.between(14, 87).all()
    assumptions = json.loads((release / "privacy.json").read_text())["assumptions"]
    said = [
        line
        for line in assumptions
        if "is public knowledge: the challenge's parameters.json." in line
    ]
    assert len(said) == len(configuration.columns)
