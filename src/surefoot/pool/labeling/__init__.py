"""Answers about the rows of a table: who gave which, what they prove, and which rows to ask for."""
