"""A real Slurm on one machine: virtual nodes with fake GPUs, for tests and for trying things out."""

from slurm.testcluster.cluster import TestCluster

__all__ = ["TestCluster"]
