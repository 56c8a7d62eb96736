"""Thermocline's planner: decides. Pure: no sockets, files, clock, environment, logging, threads."""
