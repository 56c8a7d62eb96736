"""Attacks as generators: what a user who means harm may send, drawn by a seed."""
