"""How the service is watched: Prometheus's rules, and Grafana's dashboards as Python."""
