"""The inside of `.pbin` files, and copying documents between them; `data/pbin.py` is what others use."""
