"""Cohorts that leave for places outside, which whoever runs the service allows."""
