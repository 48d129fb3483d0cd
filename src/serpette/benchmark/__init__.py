"""What a model costs to run: throughput, latency, FLOPs, memory, energy."""
