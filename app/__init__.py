"""The HTTP front end. Never imports torch, lightgbm or the engine."""
