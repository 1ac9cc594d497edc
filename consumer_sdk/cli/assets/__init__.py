"""``consumer-sdk assets``: files for other programs: Grafana, Prometheus, editors and shells."""
