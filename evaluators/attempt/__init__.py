"""Attempts at a trial, common to all places where trials run."""
