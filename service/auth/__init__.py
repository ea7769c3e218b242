"""API keys, tenants, and what a key may do."""
