"""What ``make install`` has brought, in one line, and what an extra would add."""

from __future__ import annotations

from importlib import metadata

from packaging.requirements import Requirement

DISTRIBUTION = "bitpipe-bench"
ADDS = {
    "dev": "what the tests and linters need",
    "search": "the exact solver of orders",
    "megatron": "Megatron-format data sets",
    "dashboard": "wandb workspaces",
}


def line() -> str:
    """Versions of what matters, and every extra that is not there."""
    has = {dist.metadata["Name"].lower().replace("_", "-") for dist in metadata.distributions()}
    wanted: dict[str, set[str]] = {extra: set() for extra in ADDS}
    for requirement in map(Requirement, metadata.requires(DISTRIBUTION) or ()):
        for extra, names in wanted.items():
            if requirement.marker and requirement.marker.evaluate({"extra": extra}):
                names.add(requirement.name.lower().replace("_", "-"))
    missing = [extra for extra, names in wanted.items() if not names <= has]
    torch = metadata.version("torch")
    said = f"installed into .venv: {DISTRIBUTION} {metadata.version(DISTRIBUTION)}, torch {torch}"
    if not missing:
        return f"{said}, all extras"
    adds = "; ".join(f"{extra}: {ADDS[extra]}" for extra in missing)
    here = [extra for extra in ADDS if extra not in missing]
    return f"{said}. make install EXTRAS={','.join([*here, *missing])} would add {adds}"


if __name__ == "__main__":
    print(line())
