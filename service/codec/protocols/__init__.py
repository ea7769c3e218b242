"""Protocols that clients already speak: Open Inference Protocol (KServe V2) and OpenFeature (OFREP)."""
