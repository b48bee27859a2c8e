"""From a CSV file to a first settings file."""
