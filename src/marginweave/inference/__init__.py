"""What is made of a finished release without new charges, and what is kept of it."""
