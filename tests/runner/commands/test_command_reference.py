"""`docs/commands.md` is what the parsers say."""

from tests.runner.commands.command_reference import FILE, text


def test_the_page_of_commands_is_made_from_the_parsers() -> None:
    assert FILE.read_text() == text(), "run python -m tests.runner.commands.command_reference"


def test_the_page_has_every_command_with_its_actions_and_each_option_by_its_commands() -> None:
    page = text()
    assert "* `queue cancel [options] [EXPERIMENT...]`: stop experiments by id" in page
    assert "`run`, `tune`:\n\n* `--python PATH`: " in page
    assert page.count("* `--markdown FILE`") == 1
    assert "SUPPRESS" not in page
