"""The aligner beside eflomal and fast_align, on the very same tokens."""
