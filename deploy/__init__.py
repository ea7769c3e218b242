"""How the service is deployed: nginx in front of it, and Kubernetes manifests as Python."""
