"""What a report says of a fit, as plain data."""
