"""`python -m ehr_d3pm`: the same as `ehr-d3pm`."""

from ehr_d3pm.cli import main

if __name__ == "__main__":
    main()
