"""How weights are quantized in a file, one scheme a file: each decodes blocks into numbers."""
