// Columns of numbers.

// The index of the last number of an ascending column that is at most v; -1 if none is.
export function lastAtMost(column, v) {
  let low = 0, high = column.length;
  while (low < high) { const middle = (low + high) >> 1; if (column[middle] <= v) low = middle + 1; else high = middle; }
  return low - 1;
}

// The smallest and the largest number that is finite; null without one.
export function extent(...columns) {
  let low = Infinity, high = -Infinity;
  for (const column of columns) for (const v of column) if (Number.isFinite(v)) { if (v < low) low = v; if (v > high) high = v; }
  return low <= high ? [low, high] : null;
}

// Exponential moving average without a bias at the start. Values that are not finite stay as they are.
export function smooth(values, weight) {
  if (!weight) return values;
  let sum = 0, total = 0;
  return values.map((v) => {
    if (!Number.isFinite(v)) return v;
    sum = sum * weight + v * (1 - weight);
    total = total * weight + (1 - weight);
    return sum / total;
  });
}
