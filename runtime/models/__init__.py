"""Models: the seam, the providers and the script."""
