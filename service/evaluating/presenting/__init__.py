"""Results of evaluations for people: in a terminal and as a page."""
