"""`python -m app.cli`: the same as `ehr-d3pm`."""

from app.cli import main

if __name__ == "__main__":
    main()
