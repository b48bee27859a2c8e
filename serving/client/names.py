"""What a column is called where only a tensor's name will do."""

import keyword
import re

_UNSAFE = re.compile(r"[^A-Za-z0-9_]")


def tensor_name(column: str) -> str:
    """Return the name of a column's input in `serving_columns`.

    The column's own name, if TensorFlow takes it: letters, digits and underscores.
    Any other character becomes an underscore, and a leading digit gets one;
    a word that Python keeps for itself gets one at the end.
    """
    name = _UNSAFE.sub("_", column)
    if not name[:1].isalpha():
        name = f"c_{name}"
    # A signature's inputs are parameters to TensorFlow: `class` cannot be one.
    return f"{name}_" if keyword.iskeyword(name) else name
