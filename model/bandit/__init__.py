"""LinUCB on encoded contexts: A, b and θ, UCB, selection, policies, confidence."""
