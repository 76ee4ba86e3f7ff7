"""The same problem for rows that do not fit in memory, or lie elsewhere: every pass is a sum over blocks of rows."""
