"""What passes between stages and over the boundary: frozen, validated, serializable; imports nothing else of ours."""
