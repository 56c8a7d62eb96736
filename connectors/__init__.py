"""Thermocline's connectors: what touches Kafka, Iceberg and Spark."""
