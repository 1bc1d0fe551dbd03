"""`python -m istar_lite` is the command `istar-lite`."""

from istar_lite.cli import main

if __name__ == "__main__":
    main(prog_name="istar-lite")
