"""`istar-lite bench speed` from a checkout: `python tests/bench/speed.py --items 2000 --peers --json > now.json`."""

from istar_lite.cli.benches import speed

if __name__ == "__main__":
    speed()
