"""The places: one file each, bytes and verbs only."""
