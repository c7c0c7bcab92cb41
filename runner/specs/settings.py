"""Names with settings, as specifications write them: `name:setting=value+setting=value`."""

from runner.errors import InvalidSpec
from runner.specs.options import read_value
from runner.specs.validation import Options, require


def parse_settings(text: str, field: str) -> tuple[str, Options]:
    """Name and settings; raises `InvalidSpec` for the field if a setting is not `name=value`."""
    name, _, settings = text.partition(":")
    options: Options = {}
    for setting in filter(None, settings.split("+")):
        key, equals, value = setting.partition("=")
        rule = f"the setting {setting!r} must read name=value; several are joined by '+'"
        require(bool(key.isidentifier() and equals and value), field, text, rule)
        try:
            options[key] = read_value(value)
        except ValueError as error:
            raise InvalidSpec(field, text, str(error)) from None
    return name, options
