"""From a model and a split to a blessing, with the reasons."""
