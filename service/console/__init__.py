"""The console: pages of the service for people, rendered here, with the services of the API."""
