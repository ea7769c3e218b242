"""The HTTP border: request heads and connections."""
