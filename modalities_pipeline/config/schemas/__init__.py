"""What a whole run needs: one module for each kind of config. Imports no torch."""
