"""Keeps the budget ledger: caps and charges of accounts, and the proof that no row was changed since it was written."""

from marginweave.ledger.admission import ReleaseRequest as ReleaseRequest
from marginweave.ledger.creation import create_tables as create_tables
from marginweave.ledger.ledger import Ledger as Ledger
from marginweave.ledger.location import LedgerLocation as LedgerLocation
from marginweave.ledger.location import PostgresLocation as PostgresLocation
from marginweave.ledger.location import example_ledger_location as example_ledger_location
from marginweave.ledger.location import ledger_location as ledger_location
from marginweave.ledger.location import opening_command as opening_command
from marginweave.ledger.location import opening_for as opening_for
from marginweave.ledger.witness import Witness as Witness
