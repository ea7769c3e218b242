"""Routes that show an experiment to people: its log, what it learned, its latents."""
