use std::collections::BTreeMap;

/// Values at some sizes, with straight lines in between.
#[derive(Clone, Debug, Default)]
pub(super) struct Curve {
    values: BTreeMap<usize, f64>,
}

impl Curve {
    pub fn set(&mut self, size: usize, value: f64) {
        self.values.insert(size, value);
    }

    /// The largest size that was measured.
    pub fn last(&self) -> Option<usize> {
        self.values.keys().next_back().copied()
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The value at `size`; none where nothing was measured.
    pub fn at(&self, size: usize) -> Option<f64> {
        let below = self.values.range(..=size).next_back();
        let above = self.values.range(size..).next();
        let line = |(x0, y0): (&usize, &f64), (x1, y1): (&usize, &f64)| {
            let share = (size as f64 - *x0 as f64) / (*x1 as f64 - *x0 as f64);
            y0 + share * (y1 - y0)
        };
        match (below, above) {
            (Some(below), Some(above)) if below.0 != above.0 => Some(line(below, above)),
            (Some(exact), Some(_)) => Some(*exact.1),
            (None, Some(above)) => Some(*above.1),
            // Behind the largest size the cost goes on as it rose on the whole, but never falls.
            (Some(last), None) => match self.values.iter().next() {
                Some(first) if first.0 != last.0 => Some(line(first, last).max(*last.1)),
                _ => Some(*last.1),
            },
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_on_lines_and_never_fall_behind_the_end() {
        let mut curve = Curve::default();
        assert_eq!((curve.at(3), curve.last()), (None, None));
        curve.set(4, 10.0);
        assert_eq!([1, 4, 9].map(|at| curve.at(at)), [Some(10.0); 3]);
        curve.set(8, 12.0);
        curve.set(16, 11.0);
        let values = [1, 4, 6, 8, 12].map(|at| curve.at(at));
        assert_eq!(values, [10.0, 10.0, 11.0, 12.0, 11.5].map(Some));
        let behind = curve.at(28);
        assert!((behind.unwrap() - 12.0).abs() < 1e-9, "{behind:?}");
        curve.set(16, 9.0);
        assert_eq!((curve.at(100), curve.last()), (Some(9.0), Some(16)));
    }
}
