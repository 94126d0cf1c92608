"""How a preset of `worker/catalog/presets.py` becomes a Hugging Face model with its weights."""
