"""What pruning costs: accuracy, of one model or of many plans in one pass."""
