"""Pictures and printed output: style, labels, rendering."""
