"""Where the checkout is: the product is run from it, with ``conf/`` and ``results/`` beside the packages."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
