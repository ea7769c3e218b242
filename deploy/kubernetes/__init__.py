"""The service on Kubernetes: manifests made by Python."""
