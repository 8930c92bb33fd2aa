"""From cells to records: blocks on real ranks or the cost model, repeats, outcome."""
