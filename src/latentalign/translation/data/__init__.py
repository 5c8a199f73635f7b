"""Text as numbers: corpora, tokenizers, batches, prepared shards."""
