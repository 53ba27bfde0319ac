"""The budget ledger: what may be spent on an account, what was, and the proof that nothing was changed since."""

from marginweave.tasks.ledger.admission import ReleaseRequest as ReleaseRequest
from marginweave.tasks.ledger.creation import is_older as is_older
from marginweave.tasks.ledger.creation import upgrade as upgrade
from marginweave.tasks.ledger.ledger import Ledger as Ledger
from marginweave.tasks.ledger.location import LedgerLocation as LedgerLocation
from marginweave.tasks.ledger.location import PostgresLocation as PostgresLocation
from marginweave.tasks.ledger.location import example_ledger_location as example_ledger_location
from marginweave.tasks.ledger.location import ledger_location as ledger_location
from marginweave.tasks.ledger.location import opening_command as opening_command
from marginweave.tasks.ledger.location import opening_for as opening_for
from marginweave.tasks.ledger.witness import Witness as Witness
