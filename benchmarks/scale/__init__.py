"""Speed and memory as tables grow: whole releases, and the ratio to pac-synth (python -m benchmarks.scale --help)."""
