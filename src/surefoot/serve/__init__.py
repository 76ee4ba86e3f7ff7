"""A labeling page in the browser: rows one by one, several people, and a proof of when to stop."""
