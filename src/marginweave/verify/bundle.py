"""Checks a handed-over release without marginweave: verify.py is in every bundle, and needs only Python's standard library.

Usage: python verify.py [FOLDER], in the folder of ledger.jsonl, chain.jsonl, anchor.json, plan.json, privacy.json and
account.json. FOLDER is where the release was published; without it, only privacy.json and account.json are compared with the
ledger. Of a rejected release nothing is published, and privacy.json says what it would have promised. The exit code is 0 if
everything fits, 1 at the first fault, and 2 if an older version made the bundle.
"""

from __future__ import annotations

import hashlib
import json
import sys
from decimal import Decimal
from pathlib import Path

# handover.py joins this module and the three below into verify.py, without these imports.
from marginweave.base.formats import STATEMENT_FORMAT, older_fault
from marginweave.verify.bundle_accounting import AMOUNTS, Content, Fault, require
from marginweave.verify.bundle_statement import NOT_IN_ROWS, check_account, check_statement

# As in the ledger: columns that are not part of a row's content.
_SEALS = frozenset({"row_hash", "mac", "prev_hash"})
_GENESIS = "0" * 64  # before the first row
# The kinds of a draw's rows, from its first to its last.
_COURSES = (
    ["RESERVED", "DRAWN", "COMMITTED"],
    ["RESERVED", "DRAWN", "CHARGED_LOST"],
    ["RESERVED", "RETURNED"],
    # in a ledger that was restored and reconciled
    ["RESERVED", "CHARGED_LOST"],
    ["RESERVED", "RETURNED", "DRAWN", "COMMITTED"],
    ["RESERVED", "RETURNED", "DRAWN", "CHARGED_LOST"],
)


def verify(bundle: Path, published: Path | None = None) -> list[str]:
    """Check the bundle, and the files in `published` if given; return what was checked, in sentences.

    It checks:
    - SHA-256 of every row's content, and its place in the chain of hashes;
    - every hash of that chain from the first row to the anchor: each is that of the hash before it and the digest of a row's
      content, also of rows that are not here;
    - plan.json against the rows that reserved it;
    - that every draw was completed, and a required approval given, before the row that published;
    - every mechanism, parameter and total of privacy.json against the rows, and its epsilon against the costs in them;
    - SHA-256 of the released files against the row that published;
    - of a rejected release: that it was submitted and rejected, and privacy.json against its plan.

    Raises:
        Fault: the first thing that does not fit.
        OSError, ValueError, KeyError, IndexError, TypeError, ArithmeticError: a file is missing, or is not what a bundle has.
    """
    rows = _lines(bundle / "ledger.jsonl")
    chain = _chain(_lines(bundle / "chain.jsonl"))
    anchor = json.loads((bundle / "anchor.json").read_bytes())
    tip = (len(chain), chain[-1]["row_hash"]) if chain else None
    ends_at_anchor = tip is not None and tip == (anchor["seq"], anchor["hash"])
    require(ends_at_anchor, "the chain of hashes does not lead from the first row to the anchor")
    for row in rows:
        _check_row(row, chain)
    final_row = [row for row in rows if row["kind"] in {"PUBLISHED", "REJECTED"}][-1]
    release = final_row["release"]
    release_rows = [row for row in rows if row["release"] == release and row["kind"] != "REFUSED"]
    plan = json.loads((bundle / "plan.json").read_bytes())
    _check_plan(plan, release_rows)
    _check_costs(plan, release_rows)
    _check_course(release_rows, final_row)
    statement = json.loads((bundle / "privacy.json").read_bytes())
    check_statement(statement, rows, release)
    if final_row["kind"] == "REJECTED":
        sentences = _check_rejected(plan, release_rows, statement, published)
    else:
        _check_correction(rows, release_rows[0])
        sentences = _check_published(plan, release_rows, bundle, published)
        sentences.append(_check_account_file(rows, final_row, bundle, published))
    return [
        f"{len(rows)} rows of the ledger are unchanged and at their places in a chain of {len(chain)} rows",
        f"the chain ends at the anchor: row {anchor['seq']}, {anchor['hash']}",
        f"plan.json is what row {release_rows[0]['seq']} reserved: {len(plan['draws'])} draw(s), at the same costs",
        (
            f"privacy.json says what the rows say of its {len(statement['mechanisms'])} draw(s), and its epsilon follows from "
            f"them; the rows do not determine {', '.join(NOT_IN_ROWS)}"
        ),
        *sentences,
    ]


def _check_row(row: Content, chain: list[Content]) -> None:
    """Refuse a row whose content or hashes differ from its link in the chain."""
    number = row["seq"]
    unchanged = False
    if 1 <= number <= len(chain):
        link = chain[number - 1]
        previous_hash = chain[number - 2]["row_hash"] if number > 1 else _GENESIS
        unchanged = (
            link["content"] == _content_digest(row)
            and link["row_hash"] == row["row_hash"]
            and previous_hash == row["prev_hash"]
        )
    require(unchanged, f"row {number} was changed, or is not at its place in the chain")


def _check_published(
    plan: Content,
    release_rows: list[Content],
    bundle: Path,
    published: Path | None,
) -> list[str]:
    """Compare the released files with the row that published them, and the configuration of privacy.json with the plan's.

    Without `published` only privacy.json is compared. Returns what was checked, in sentences.
    """
    (row,) = [row for row in release_rows if row["kind"] == "PUBLISHED"]
    outputs = row["body"]["outputs"]
    folder = published or bundle
    names = [name for name in outputs if published is not None or name == "release/privacy.json"]
    for name in names:
        content = (folder / name.removeprefix("release/")).read_bytes()
        require(_sha256(content) == outputs[name], f"{name} is not the file that was published")
    configuration = json.loads((folder / "privacy.json").read_bytes())["configuration"]
    require(
        configuration == plan["configuration"],
        "the configuration in plan.json is not that of privacy.json",
    )
    approvals = [row for row in release_rows if row["kind"] == "APPROVED"]
    approved = "".join(f", and {approval['actor']} had approved it" for approval in approvals)
    sentences = [
        f"row {row['seq']} published it after all draws were completed{approved}",
        f"{len(names)} of {len(outputs)} released file(s) compared with the row that published them",
    ]
    if published is not None:
        released = {"account.json", *(name.removeprefix("release/") for name in names)}
        sentences += _unreleased_files(published, released)
    return sentences


def _unreleased_files(published: Path, released: set[str]) -> list[str]:
    """Return a sentence that lists at most ten files in `published` that are not `released`; none if there are none."""
    files = [place for place in published.rglob("*") if place.is_symlink() or not place.is_dir()]
    present = {place.relative_to(published).as_posix() for place in files}
    names = sorted(present - released)
    if not names:
        return []
    listed = ", ".join(map(ascii, names[:10]))
    if len(names) > 10:
        listed += ", and more"
    return [
        f"not checked, as the release does not have them: {len(names)} other file(s) in {published}: {listed}"
    ]


def _check_account_file(
    rows: list[Content], final_row: Content, bundle: Path, published: Path | None
) -> str:
    """Compare account.json, of which no row has a digest, with the rows of the account; return a sentence that says so."""
    content = (bundle / "account.json").read_bytes()
    check_account(json.loads(content), rows, final_row)
    same = published is None or (published / "account.json").read_bytes() == content
    require(same, "account.json is not the one that was published")
    return (
        f"account.json has the cap of the rows at row {final_row['seq']}; "
        "its total is not below the charge of this release, and may have others whose rows are not here"
    )


def _check_rejected(
    plan: Content, release_rows: list[Content], statement: Content, published: Path | None
) -> list[str]:
    """Compare the privacy.json of a rejected release with its plan and the row that rejected it.

    Nothing of it may be published. Returns what was checked, in sentences.
    """
    (row,) = [row for row in release_rows if row["kind"] == "REJECTED"]
    require(published is None, f"row {row['seq']} rejected it: nothing of it is published")
    stated = dict(statement["guarantee"])
    stated |= {name: statement[name] for name in ("configuration", "release", "rejected")}
    expected = {name: plan[name] for name in ("epsilon", "delta", "neighbors", "configuration")}
    expected["release"] = row["release"]
    expected["rejected"] = {"by": row["actor"], "reason": row["body"]["reason"]}
    for name, value in expected.items():
        require(
            stated[name] == value,
            f"{name} in privacy.json is not that of plan.json, or of row {row['seq']}",
        )
    return [
        f"row {row['seq']}, of {row['actor']}, rejected it after all draws were completed: charged, and not published",
        "privacy.json promises what plan.json says",
    ]


def _check_plan(plan: Content, release_rows: list[Content]) -> None:
    """Refuse a plan.json that is not what the first row reserved, before anything was drawn."""
    first = release_rows[0]
    body = first["body"]
    begins = first["kind"] == "RESERVED" and first["draw"] is None
    require(begins, "the rows of the release do not begin with its reservation")
    row = f"row {first['seq']}"
    require(
        _sha256(plan["written"].encode()) == body["plan_digest"],
        f"what was written, in plan.json, is not that of {row}",
    )
    same = plan["written_sha256"] == body["plan_digest"]
    require(same, f"written_sha256 in plan.json is not that of {row}")
    has_its_digest = _sha256(plan["configuration"].encode()) == plan["configuration_sha256"]
    require(has_its_digest, "the configuration in plan.json does not have its digest")
    for name in ("unit", "neighbors"):
        require(plan[name] == body[name], f"{name} in plan.json is not that of {row}")
    for name in ("epsilon", "delta"):
        require(
            Decimal(str(plan[name])) == Decimal(body[name]),
            f"{name} in plan.json is not that of {row}",
        )
    same = all(plan[name] == body[name] for name in ("delta_threshold", "spent_epsilon"))
    require(same, f"delta_threshold or spent_epsilon in plan.json is not that of {row}")
    same = len(plan["draws"]) == len(body["draws"])
    for draw, reserved in zip(plan["draws"], body["draws"]):  # noqa: B905 - Python 3.9 runs it
        planned = {name: draw.get(name) for name in reserved}
        same = same and planned == reserved
    require(same, f"the draws in plan.json are not those of {row}")


def _check_costs(plan: Content, release_rows: list[Content]) -> None:
    """Refuse a plan with a draw that was not reserved, or not at the cost in its row."""
    reserved = {}
    for row in release_rows:
        if row["kind"] == "RESERVED" and row["draw"] is not None:
            reserved[row["draw"]] = row
    complete = len(reserved) == len(plan["draws"])
    require(complete, "rows of the reservation are missing")
    for draw in plan["draws"]:
        row = reserved[draw["name"]]
        same = all(Decimal(draw[amount]) == Decimal(row[amount]) for amount in AMOUNTS)
        require(same, f"the cost of {draw['name']} in plan.json is not that of row {row['seq']}")


def _check_course(release_rows: list[Content], final_row: Content) -> None:
    """Refuse a release that was published or rejected before its draws were completed, or without its approval.

    Every draw must be reserved, drawn and ended; a release that needs an approval must be submitted and decided.
    """
    courses: dict[str, list[str]] = {}
    for row in release_rows:
        if row["draw"] is not None:
            courses.setdefault(row["draw"], []).append(row["kind"])
            in_time = row["seq"] <= final_row["seq"]
            require(
                in_time, f"row {row['seq']} is of a draw after the publication, or the decision"
            )
    for name, course in courses.items():
        rows = ", ".join(course)
        require(
            course in _COURSES,
            f"the rows of {name} are {rows}: some are missing, or in another order",
        )
    steps = [
        row
        for row in release_rows
        if row["kind"] in {"SUBMITTED", "APPROVED", "REJECTED", "PUBLISHED"}
    ]
    kinds = [row["kind"] for row in steps]
    if release_rows[0]["body"].get("approval") == "required" or final_row["kind"] == "REJECTED":
        fits = kinds in (["SUBMITTED", "APPROVED", "PUBLISHED"], ["SUBMITTED", "REJECTED"])
        require(
            fits,
            "it needs an approval, and was not submitted, approved and published, or rejected, in this order",
        )
        if final_row["kind"] == "PUBLISHED":
            submitted = steps[0]["body"]["outputs"]
            same = submitted == final_row["body"]["outputs"]
            require(same, "what was published is not what was submitted for approval")


def _check_correction(rows: list[Content], first: Content) -> None:
    """Refuse a release that corrects another one unless exactly one row of that one says so."""
    corrected = first["body"].get("supersedes")
    corrections = [
        row["body"] for row in rows if row["kind"] == "SUPERSEDED" and row["release"] == corrected
    ]
    corrected_by = [body["by"] for body in corrections]
    recorded = corrected is None or corrected_by == [first["release"]]
    require(recorded, f"it corrects release {corrected}, and the rows of that one do not say so")


def _lines(place: Path) -> list[Content]:
    """Return the JSON objects in a file, one a line."""
    return [json.loads(line) for line in place.read_text(encoding="utf-8").splitlines()]


def _chain(links: list[Content]) -> list[Content]:
    """Return the links of the chain, each of which follows from the hash before it and the digest of its row's content."""
    previous = _GENESIS
    for number, link in enumerate(links, 1):
        expected = _sha256(f"{previous}{link['content']}".encode())
        follows = link["seq"] == number and link["row_hash"] == expected
        require(follows, f"the chain of hashes is broken at row {number}")
        previous = link["row_hash"]
    return links


def _content_digest(row: Content) -> str:
    """Return SHA-256 of a row's content, without its seals."""
    columns = {name: value for name, value in row.items() if name not in _SEALS}
    columns["body"] = _canonical(row["body"])
    content = _canonical(columns)
    return _sha256(content.encode())


def _sha256(content: bytes) -> str:
    """Return SHA-256 of `content` in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def _canonical(content: object) -> str:
    """Return `content` as JSON with sorted keys, no spaces and ASCII only."""
    return json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def main(arguments: list[str]) -> int:
    """Check the bundle in this file's folder and print what was checked; return the exit code (0, 1 or 2).

    Of the bundle of an older version nothing is checked.
    """
    bundle = Path(__file__).resolve().parent
    try:
        written_format = json.loads((bundle / "privacy.json").read_bytes())["format"]
        older = older_fault("this handover", written_format, STATEMENT_FORMAT)
        if older is not None:
            sys.stderr.write(f"{older}\n")
            return 2
        sentences = verify(bundle, Path(arguments[0]) if arguments else None)
    except (Fault, OSError, ValueError, KeyError, IndexError, TypeError, ArithmeticError) as fault:
        sys.stderr.write(f"does not fit: {fault}\n")
        return 1
    sys.stdout.write("".join(f"{sentence}\n" for sentence in sentences))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
