"""What a column is called where only a tensor's name will do."""

import re

_UNSAFE = re.compile(r"[^A-Za-z0-9_]")


def tensor_name(column: str) -> str:
    """Return the name of a column's input in `serving_columns`.

    The column's own name, if TensorFlow takes it: letters, digits and underscores.
    Any other character becomes an underscore, and a leading digit gets one.
    """
    name = _UNSAFE.sub("_", column)
    return name if name[:1].isalpha() else f"c_{name}"
