"""What a user writes: the sections of a recipe, its file, its overrides, its phases and its task."""
