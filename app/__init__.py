"""The HTTP front end, the client and the command line. Never imports torch, lightgbm or the engine."""
