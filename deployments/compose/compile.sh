#!/bin/sh
# Releases the example survey by every method, so that numba has compiled what a release needs and keeps it in NUMBA_CACHE_DIR:
#   compile.sh AFFAIRS.YAML
# The kernels are for processors like that of the machine that builds the image; any other compiles for itself, at each start.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
for methods in k-tuples/mixture k-tuples/aggregate-seeded marginals/mixture marginals/gum; do
  sed -e "s|^aggregate:.*|aggregate: {method: ${methods%/*}}|" -e "s|^synthesize:.*|synthesize: {method: ${methods#*/}}|" \
    "$1" > "$place/affairs.yaml"
  marginweave run "$place/affairs.yaml" --home "$place" > /dev/null
done
