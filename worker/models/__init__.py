"""Models: presets as data, and how a preset becomes a Hugging Face model with its weights."""
