"""The aligner: word links from a parallel corpus alone, by a chain with a lexical likelihood."""
