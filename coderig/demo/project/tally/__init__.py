"""Splits a bill among friends, to the last cent."""
