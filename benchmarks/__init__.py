"""Side-by-side timings of transformer_lit and other implementations."""
