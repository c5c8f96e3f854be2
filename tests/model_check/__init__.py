"""Models of the protocols, searched completely for small sizes."""
