"""Where ranks lie: clusters as data, links between ranks, rank layouts."""

from bitpipe.cluster.layout import LAYOUTS, RankLayout
from bitpipe.cluster.links import LinkClass, Links
from bitpipe.cluster.topology import Cluster, Device, Link

__all__ = ["LAYOUTS", "Cluster", "Device", "Link", "LinkClass", "Links", "RankLayout"]
