"""The steps of the pipeline, in TFX's words; they run inside workers."""
