"""The demonstration on a generated corpus and its page."""
