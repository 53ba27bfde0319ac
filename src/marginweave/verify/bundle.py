"""Checks a handed-over release without marginweave: verify.py is in every bundle, and needs nothing but Python's own library.

Usage: python verify.py [FOLDER], beside ledger.jsonl, chain.jsonl, anchor.json, plan.json, privacy.json and account.json.
FOLDER is where the release was published; without it, these two alone are compared with the ledger. Of a release that was
rejected nothing is published, and privacy.json says what it would have promised. It ends with 0 if everything fits, with 1 at
the first fault, and with 2 where an older version made the bundle.
"""

from __future__ import annotations

import hashlib
import json
import sys
from decimal import Decimal
from pathlib import Path

from marginweave.base.formats import STATEMENT_FORMAT, older_fault
from marginweave.verify.bundle_accounting import AMOUNTS, Content, Fault, require
from marginweave.verify.bundle_statement import NOT_IN_ROWS, check_account, check_statement

# As in the ledger: what is no part of a row's hash.
_SEALS = frozenset({"row_hash", "mac", "prev_hash"})
_GENESIS = "0" * 64  # before the first row
# What becomes of a draw, from its first row to its last.
_COURSES = (
    ["RESERVED", "DRAWN", "COMMITTED"],
    ["RESERVED", "DRAWN", "CHARGED_LOST"],
    ["RESERVED", "RETURNED"],
    # of a ledger that was restored and reconciled
    ["RESERVED", "CHARGED_LOST"],
    ["RESERVED", "RETURNED", "DRAWN", "COMMITTED"],
    ["RESERVED", "RETURNED", "DRAWN", "CHARGED_LOST"],
)


def verify(bundle: Path, published: Path | None = None) -> list[str]:
    """What was checked, in sentences.

    SHA-256 of every row's content, its place in the chain of hashes, and every hash of that chain from the first row to the
    anchor, each of the hash before it and the digest of a row's content, also of rows that are not here;
    plan.json against the rows that reserved it; that every draw had come to its end, and an approval that was required was
    given, before the row that published; every mechanism, parameter and total of privacy.json against the rows, and its epsilon
    against the costs in them; SHA-256 of the released files against the row that published. Of a rejected release: that it
    was submitted and rejected, and privacy.json against its plan.

    Raises:
        Fault: the first thing that does not fit.
        OSError, ValueError, KeyError, IndexError, TypeError, ArithmeticError: a file is missing, or is not what a bundle has.
    """
    rows = _lines(bundle / "ledger.jsonl")
    chain = _chain(_lines(bundle / "chain.jsonl"))
    anchor = json.loads((bundle / "anchor.json").read_bytes())
    leads = bool(chain) and (len(chain), chain[-1]["row_hash"]) == (anchor["seq"], anchor["hash"])
    require(leads, "the chain of hashes does not lead from the first row to the anchor")
    for row in rows:
        link = chain[row["seq"] - 1] if 1 <= row["seq"] <= len(chain) else {}
        previous = chain[row["seq"] - 2]["row_hash"] if row["seq"] > 1 else _GENESIS
        seals = (link.get("content"), link.get("row_hash"), previous)
        unchanged = seals == (_content_digest(row), row["row_hash"], row["prev_hash"])
        require(unchanged, f"row {row['seq']} was changed, or is not at its place in the chain")
    ended = [row for row in rows if row["kind"] in {"PUBLISHED", "REJECTED"}][-1]
    own = [row for row in rows if row["release"] == ended["release"] and row["kind"] != "REFUSED"]
    plan = json.loads((bundle / "plan.json").read_bytes())
    _check_plan(plan, own)
    _check_costs(plan, own)
    _check_course(own, ended)
    statement = json.loads((bundle / "privacy.json").read_bytes())
    check_statement(statement, rows, ended["release"])
    if ended["kind"] == "REJECTED":
        said = _rejected(plan, own, statement, published)
    else:
        _check_correction(rows, own[0])
        said = _published(plan, own, bundle, published)
        said.append(_account(rows, ended, bundle, published))
    return [
        f"{len(rows)} rows of the ledger are unchanged and stand at their places in a chain of {len(chain)} rows",
        f"the chain ends at the anchor: row {anchor['seq']}, {anchor['hash']}",
        f"plan.json is what row {own[0]['seq']} reserved: {len(plan['draws'])} draw(s), at the same costs",
        (
            f"privacy.json says what the rows say of its {len(statement['mechanisms'])} draw(s), and its epsilon follows from "
            f"them; the rows do not tell {', '.join(NOT_IN_ROWS)}"
        ),
        *said,
    ]


def _published(plan: Content, own: list[Content], bundle: Path, published: Path | None) -> list[str]:
    """The released files, as far as they are there, against the row that published them; what privacy.json was made of."""
    (row,) = [row for row in own if row["kind"] == "PUBLISHED"]
    outputs = row["body"]["outputs"]
    folder = published or bundle
    names = [name for name in outputs if published is not None or name == "release/privacy.json"]
    for name in names:
        content = (folder / name.removeprefix("release/")).read_bytes()
        require(_sha256(content) == outputs[name], f"{name} is not the file that was published")
    configuration = json.loads((folder / "privacy.json").read_bytes())["configuration"]
    require(configuration == plan["configuration"], "the configuration in plan.json is not that of privacy.json")
    approved = "".join(f", and {row['actor']} had approved it" for row in own if row["kind"] == "APPROVED")
    others = (
        [] if published is None else _others(published, {"account.json", *(n.removeprefix("release/") for n in names)})
    )
    return [
        f"row {row['seq']} published it after all draws were completed{approved}",
        f"{len(names)} of {len(outputs)} released file(s) compared with the row that published them",
        *others,
    ]


def _others(published: Path, released: set[str]) -> list[str]:
    """The sentence about files that lie beside the released ones, at most ten by name; none where there are none."""
    files = [place for place in published.rglob("*") if place.is_symlink() or not place.is_dir()]
    names = sorted({place.relative_to(published).as_posix() for place in files} - released)
    if not names:
        return []
    listed = ", ".join(map(ascii, names[:10])) + (", and more" if len(names) > 10 else "")
    return [f"not checked, as the release does not have them: {len(names)} other file(s) in {published}: {listed}"]


def _account(rows: list[Content], ended: Content, bundle: Path, published: Path | None) -> str:
    """account.json, which no row has a digest of, against the rows of the account."""
    content = (bundle / "account.json").read_bytes()
    check_account(json.loads(content), rows, ended)
    same = published is None or (published / "account.json").read_bytes() == content
    require(same, "account.json is not the one that was published")
    return f"account.json has the cap of the rows at row {ended['seq']}; its total may have releases whose rows are not here"


def _rejected(plan: Content, own: list[Content], statement: Content, published: Path | None) -> list[str]:
    """Nothing was published; what privacy.json would have promised, against the plan and the row that rejected it."""
    (row,) = [row for row in own if row["kind"] == "REJECTED"]
    require(published is None, f"row {row['seq']} rejected it: nothing of it is published")
    said = {**statement["guarantee"], **{name: statement[name] for name in ("configuration", "release", "rejected")}}
    booked = {name: plan[name] for name in ("epsilon", "delta", "neighbors", "configuration")}
    booked |= {"release": row["release"], "rejected": {"by": row["actor"], "reason": row["body"]["reason"]}}
    for name, value in booked.items():
        require(said[name] == value, f"{name} in privacy.json is not that of plan.json, or of row {row['seq']}")
    return [
        f"row {row['seq']}, of {row['actor']}, rejected it after all draws were completed: charged, and not published",
        "privacy.json promises what plan.json says",
    ]


def _check_plan(plan: Content, own: list[Content]) -> None:
    """The plan and its configuration, as they were reserved before anything was drawn."""
    first, body = own[0], own[0]["body"]
    begins = first["kind"] == "RESERVED" and first["draw"] is None
    require(begins, "the rows of the release do not begin with its reservation")
    row = f"row {first['seq']}"
    require(
        _sha256(plan["written"].encode()) == body["plan_digest"],
        f"what was written, in plan.json, is not that of {row}",
    )
    own_digest = _sha256(plan["configuration"].encode()) == plan["configuration_sha256"]
    require(own_digest, "the configuration in plan.json does not have its digest")
    for name in ("unit", "neighbors"):
        require(plan[name] == body[name], f"{name} in plan.json is not that of {row}")
    for name in ("epsilon", "delta"):
        require(Decimal(str(plan[name])) == Decimal(body[name]), f"{name} in plan.json is not that of {row}")
    same = all(plan[name] == body[name] for name in ("delta_threshold", "spent_epsilon"))
    require(same, f"delta_threshold or spent_epsilon in plan.json is not that of {row}")
    planned = [{name: draw.get(name) for name in of_row} for draw, of_row in zip(plan["draws"], body["draws"])]  # noqa: B905 - Python 3.9 runs it
    same = planned == body["draws"] and len(plan["draws"]) == len(body["draws"])
    require(same, f"the draws in plan.json are not those of {row}")


def _check_costs(plan: Content, own: list[Content]) -> None:
    """The cost of each draw, as it was reserved; and that every draw was."""
    reserved = {row["draw"]: row for row in own if row["kind"] == "RESERVED" and row["draw"] is not None}
    complete = len(reserved) == len(plan["draws"])
    require(complete, "rows of the reservation are missing")
    for draw in plan["draws"]:
        row = reserved[draw["name"]]
        same = all(Decimal(draw[amount]) == Decimal(row[amount]) for amount in AMOUNTS)
        require(same, f"the cost of {draw['name']} in plan.json is not that of row {row['seq']}")


def _check_course(own: list[Content], ended: Content) -> None:
    """Every draw reserved, drawn and ended; where it was required, submitted and decided: all before it was published."""
    courses: dict[str, list[str]] = {}
    for row in own:
        if row["draw"] is not None:
            courses.setdefault(row["draw"], []).append(row["kind"])
            in_time = row["seq"] <= ended["seq"]
            require(in_time, f"row {row['seq']} is of a draw after the publication, or the decision")
    for name, course in courses.items():
        rows = ", ".join(course)
        require(course in _COURSES, f"the rows of {name} are {rows}: some are missing, or in another order")
    steps = [row for row in own if row["kind"] in {"SUBMITTED", "APPROVED", "REJECTED", "PUBLISHED"}]
    kinds = [row["kind"] for row in steps]
    if own[0]["body"].get("approval") == "required" or ended["kind"] == "REJECTED":
        fits = kinds in (["SUBMITTED", "APPROVED", "PUBLISHED"], ["SUBMITTED", "REJECTED"])
        require(fits, "it needs an approval, and was not submitted, approved and published, or rejected, in this order")
        same = ended["kind"] != "PUBLISHED" or steps[0]["body"]["outputs"] == ended["body"]["outputs"]
        require(same, "what was published is not what was submitted for approval")


def _check_correction(rows: list[Content], first: Content) -> None:
    """That a release which was corrected by this one has a row that says so, and no second one."""
    old = first["body"].get("supersedes")
    by = [row["body"]["by"] for row in rows if row["kind"] == "SUPERSEDED" and row["release"] == old]
    require(
        old is None or by == [first["release"]], f"it corrects release {old}, and the rows of that one do not say so"
    )


def _lines(place: Path) -> list[Content]:
    return [json.loads(line) for line in place.read_text(encoding="utf-8").splitlines()]


def _chain(links: list[Content]) -> list[Content]:
    """Return the links of the chain, each of which follows from the hash before it and the digest of its row's content."""
    previous = _GENESIS
    for number, link in enumerate(links, 1):
        follows = link["seq"] == number and link["row_hash"] == _sha256(f"{previous}{link['content']}".encode())
        require(follows, f"the chain of hashes is broken at row {number}")
        previous = link["row_hash"]
    return links


def _content_digest(row: Content) -> str:
    """Return SHA-256 of a row's content, without its seals."""
    columns = {name: value for name, value in row.items() if name not in _SEALS}
    return _sha256(_canonical({**columns, "body": _canonical(row["body"])}).encode())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _canonical(content: object) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def main(arguments: list[str]) -> int:
    """Check the bundle beside this file, and tell; of an older version's nothing is checked."""
    bundle = Path(__file__).resolve().parent
    try:
        found = json.loads((bundle / "privacy.json").read_bytes())["format"]
        if (older := older_fault("this handover", found, STATEMENT_FORMAT)) is not None:
            sys.stderr.write(f"{older}\n")
            return 2
        said = verify(bundle, Path(arguments[0]) if arguments else None)
    except (Fault, OSError, ValueError, KeyError, IndexError, TypeError, ArithmeticError) as fault:
        sys.stderr.write(f"does not fit: {fault}\n")
        return 1
    sys.stdout.write("".join(f"{line}\n" for line in said))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
