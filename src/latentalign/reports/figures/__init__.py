"""Pictures: alignments, image regions, training curves, perplexity over K."""
