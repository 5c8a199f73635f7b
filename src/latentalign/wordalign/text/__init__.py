"""What the aligner reads: words, vocabularies, which words occur together, shards of a corpus."""
