//! Histograms that many threads fill.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of values below each bound, with their sum.
pub struct Histogram {
    bounds: &'static [f64],
    /// One more than there are bounds; not cumulative.
    counts: Vec<AtomicU64>,
    /// Bits of an `f64`.
    sum: AtomicU64,
}

/// A histogram as it stood at one moment.
pub struct Snapshot {
    /// Bound and number of values at or below it; the last bound is infinite.
    pub buckets: Vec<(f64, u64)>,
    /// Sum of the values.
    pub sum: f64,
}

impl Snapshot {
    /// Number of values.
    pub fn count(&self) -> u64 {
        self.buckets.last().map_or(0, |(_, count)| *count)
    }
}

impl Histogram {
    /// An empty one; the bounds rise.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    /// Adds a value `times` times.
    pub fn observe(&self, value: f64, times: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(times, Ordering::Relaxed);
        let add = |bits| Some((f64::from_bits(bits) + value * times as f64).to_bits());
        // The closure never refuses.
        let _ = self
            .sum
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// What has been added so far.
    pub fn snapshot(&self) -> Snapshot {
        let mut below = 0;
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let buckets = bounds.zip(&self.counts).map(|(bound, count)| {
            below += count.load(Ordering::Relaxed);
            (bound, below)
        });
        Snapshot {
            buckets: buckets.collect(),
            sum: f64::from_bits(self.sum.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_their_buckets() {
        let histogram = Histogram::new(&[1.0, 2.0]);
        histogram.observe(1.0, 2);
        histogram.observe(1.5, 1);
        histogram.observe(9.0, 1);
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.buckets, [(1.0, 2), (2.0, 3), (f64::INFINITY, 4)]);
        assert_eq!(snapshot.sum, 12.5);
        assert_eq!(snapshot.count(), 4);
    }
}
