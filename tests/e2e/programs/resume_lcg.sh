#!/bin/sh
# resume_lcg.sh STEPS: a sequence of numbers, saved every five steps by rank 0 and continued from there by all ranks.
step=0 value=1
[ -z "$TRAINYARD_RESUME" ] || read -r step value < "$TRAINYARD_RESUME"
while [ "$step" -lt "$1" ]; do
  step=$((step + 1)) value=$(((value * 75 + 74) % 65537))
  sleep 0.03
  [ "$RANK" = 0 ] || continue
  echo "{\"step\": $step, \"loss\": $value}" > "$TRAINYARD_METRICS"
  [ $((step % 5)) -ne 0 ] || { echo "$step $value" > "$TRAINYARD_CHECKPOINTS/part" &&
    mv "$TRAINYARD_CHECKPOINTS/part" "$TRAINYARD_CHECKPOINTS/step-$step"; }
done
echo "ends at $step"
