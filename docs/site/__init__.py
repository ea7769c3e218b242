"""The documentation as a site: Sphinx with furo, from the pages of the repository."""
