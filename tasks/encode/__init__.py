"""Stage 3: clean values to small unsigned integer codes; numbers by public bins."""
