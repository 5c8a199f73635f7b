"""What a run leaves on disk: its folder, checkpoints, journal and environment; how it is opened, forked and loaded."""
