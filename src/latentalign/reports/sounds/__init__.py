"""Letters to sounds: every objective on many languages, trained to the end, and what the differences prove."""
