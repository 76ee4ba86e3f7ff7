"""Rows that do not fit in memory or are stored elsewhere. Each pass is a sum over blocks of rows."""
