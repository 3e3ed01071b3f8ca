#!/bin/sh
# Each rank halves its number until it is small. Rank 0 reports the steps.
value=1024 step=0
while [ "$value" -gt 1 ]; do
  value=$((value / 2)) step=$((step + 1))
  [ "$RANK" != 0 ] || echo "{\"step\": $step, \"loss\": $value}" > "$TRAINYARD_METRICS"
done
echo "rank $RANK of $WORLD_SIZE has $value"
