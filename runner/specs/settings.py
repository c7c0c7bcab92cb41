"""Names with settings, as specifications write them: `name:setting=value+setting=value`."""

from runner.errors import InvalidSpec
from runner.specs.options import read_value
from runner.specs.validation import Options, require


def parse_settings(text: str, field: str, *, dotted: bool = False) -> tuple[str, Options]:
    """Name and settings; raises `InvalidSpec` for the field if a setting is not `name=value`.

    `dotted`: whether a setting's name may have several parts, as `triton.cudagraphs`.
    """
    name, _, settings = text.partition(":")
    options: Options = {}
    for setting in filter(None, settings.split("+")):
        key, equals, value = setting.partition("=")
        rule = f"the setting {setting!r} must read name=value; several are joined by '+'"
        is_name = all(map(str.isidentifier, key.split(".") if dotted else [key]))
        require(bool(is_name and equals and value), field, text, rule)
        try:
            options[key] = read_value(value)
        except ValueError as error:
            raise InvalidSpec(field, text, str(error)) from None
    return name, options
