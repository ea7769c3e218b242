"""HTTP as bytes: raw connections, cases, and what h11 makes of them."""
