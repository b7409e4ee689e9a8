"""The experiments of the papers, and the demo."""
