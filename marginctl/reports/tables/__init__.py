"""Builders of the tables that reports show."""
