"""One file per format; each yields `Tensors`. A new format is a file here and a row in `open.py`."""
