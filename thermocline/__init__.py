"""Thermocline's face: the command line and what puts the parts together."""
