"""Attacks, one file each: they search or tune and never judge themselves."""
