"""From a transform output to a SavedModel."""
