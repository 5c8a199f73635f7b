"""A grid of training runs: cells, shared warm-ups, jobs in processes, measurements that are taken once."""
