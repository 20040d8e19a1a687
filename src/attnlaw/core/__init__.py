"""What all other packages of attnlaw build on: errors, settings, results, files. It imports none of them."""
