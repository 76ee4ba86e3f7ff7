"""Certificates of the worst case, over the rows passed and over fresh rows."""
