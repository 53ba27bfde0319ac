"""What the configuration file says: parsed, completed with defaults, and checked."""
