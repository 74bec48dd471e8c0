"""Derives the raw part of every binding from mxq.h."""
