"""Generators from the literature, to compare with."""
