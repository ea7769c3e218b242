"""Routes of protocols that clients already speak; they call what the other routes call."""
