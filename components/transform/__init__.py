"""From the feature table to the Transform graph."""
