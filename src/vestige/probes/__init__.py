"""What went with the forget set: questions near it and far from it, and the holes that they find."""
