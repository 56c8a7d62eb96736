"""Thermocline's proxy: serves statements."""
