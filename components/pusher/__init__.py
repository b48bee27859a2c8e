"""From a blessed model to a version in the model repository."""
