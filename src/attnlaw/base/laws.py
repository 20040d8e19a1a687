"""The names of laws in rows: what a fit may say of a matrix, in the order of tables and legends.

`attnlaw.fits.describe` decides between them.
"""

LAW_NAMES = ("random", "learned", "heavy-tailed", "power-law tail", "neither")
