"""Values reach SQL as parameters alone: what is written into a statement are names of our own.

Every piece that an f-string puts into a statement stands here with its file. A new one is no error:
it is to be looked at. A value, above all one that a page, a file or an address gave, becomes a
parameter (`$1`); a name of a table or a column that comes from our own code is entered below.
"""

import ast
import re
from collections.abc import Iterator

from breakeven.runner.project import PROJECT_ROOT

STATEMENT = re.compile(
    r"\b(SELECT|INSERT INTO|DELETE FROM|UPDATE|CREATE|FROM|WHERE|ATTACH|COPY|DROP|ORDER BY)\b"
)
REVIEWED = {
    "index/ingest.py": {"', '.join(names)", "condition", "fields", "picked", "shape", "table"},
    "queries/experiments.py": {
        "', '.join((f'any_value({name}) AS {name}' for name in FACTS))",
        "', '.join(TAKEN_IN)",
        "RunState.RUNNING",
    },
    "queries/rows.py": {
        "', '.join(OF_RUNS)",
        "columns",
        "f'WHERE {IN_EXPERIMENT}' if is_table else ''",
        "order",
        "source",
        "table",
    },
    "queries/series.py": {"newest.format('NULL')", "newest.format('processes IS NULL')"},
    "queries/time_use.py": {"doing", "under_way"},
    "team/team_store.py": {"gone", "listed", "rows", "table"},
    "team/feed.py": {"table"},
    # What the operator named in the settings, quoted.
    "team/lake.py": {
        "', '.join(options)",
        "file",
        "kind",
        "', '.join(['TYPE s3', *settings])",
        "place",
        "quoted(question)",
        "self.address.catalog",
    },
    "team/team_actions.py": {
        "' UNION ALL '.join(counts)",
        "catalog",
        "gone",
        "macro",
        "of_folder",
        "table",
    },
}


def pieces(source: str) -> Iterator[str]:
    """What is put into the statements of a module, but for constants of its own."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value for part in node.values if isinstance(part, ast.Constant)]
            put = [
                ast.unparse(part.value)
                for part in node.values
                if isinstance(part, ast.FormattedValue)
            ]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.Add):
            parts = [node.left.value] if isinstance(node.left, ast.Constant) else []
            put = [ast.unparse(node.right)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            said = node.func.value
            is_format = node.func.attr == "format" and isinstance(said, ast.Constant)
            parts = [said.value] if is_format and isinstance(said, ast.Constant) else []
            put = [ast.unparse(argument) for argument in node.args]
        else:
            continue
        if any(STATEMENT.search(str(part)) for part in parts):
            yield from (
                expression for expression in put if not re.fullmatch(r"[A-Z][A-Z_]+", expression)
            )


def test_nothing_but_names_of_our_own_is_written_into_a_statement() -> None:
    put_by_module: dict[str, set[str]] = {}
    for file in sorted((PROJECT_ROOT / "storage").rglob("*.py")):
        if put := set(pieces(file.read_text())):
            put_by_module[file.relative_to(PROJECT_ROOT / "storage").as_posix()] = put
    new = {name: put - REVIEWED.get(name, set()) for name, put in put_by_module.items()}
    assert not {name: put for name, put in new.items() if put}, "look at them: see above"
    gone = {name: put - put_by_module.get(name, set()) for name, put in REVIEWED.items()}
    assert not {name: put for name, put in gone.items() if put}, "these are there no more"


def test_a_value_that_is_written_into_a_statement_is_found() -> None:
    assert list(pieces("f\"SELECT * FROM runs WHERE name = '{name}'\"")) == ["name"]
    assert list(pieces("\"SELECT * FROM runs WHERE name = '%s'\" % name")) == ["name"]
    assert list(pieces('"SELECT * FROM runs WHERE name = " + name')) == ["name"]
    assert list(pieces('"DELETE FROM {}".format(asked)')) == ["asked"]
    assert list(pieces('f"SELECT * FROM {TABLE}"')) == list(pieces('f"hello {name}"')) == []
