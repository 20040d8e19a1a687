"""An untrained Transformer: its exact law at its own width, and three limits of infinite width."""
