"""Models, their norms and their initialisation: maths only."""
