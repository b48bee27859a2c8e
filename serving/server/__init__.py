"""The embedded model server, a drop-in for tensorflow_model_server."""
