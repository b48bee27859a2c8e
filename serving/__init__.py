"""Everything after the push: repository, model server, client."""
