"""What of the graphical model needs no extra: its size, its refusals, and records dealt from a tree."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import yaml

from marginweave.flows.request import read_request
from marginweave.flows.sizes import check_size
from marginweave.schemas.errors import InputError
from marginweave.schemas.measurements import Measurement
from marginweave.tasks.synthesize.pgm import fit
from marginweave.tasks.synthesize.pgm.size import model_cells, tree_tables
from marginweave.tasks.synthesize.pgm.synthesize import Pgm, PgmSettings
from marginweave.tasks.synthesize.pgm.tree import Tree
from tests.support.configurations import configuration, raw
