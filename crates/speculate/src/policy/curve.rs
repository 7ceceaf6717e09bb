/// Values at some sizes, with straight lines in between.
#[derive(Clone, Debug, Default)]
pub(super) struct Curve {
    /// By size.
    values: Vec<(usize, f64)>,
}

impl Curve {
    pub fn set(&mut self, size: usize, value: f64) {
        match self.values.binary_search_by_key(&size, |&(at, _)| at) {
            Ok(index) => self.values[index].1 = value,
            Err(index) => self.values.insert(index, (size, value)),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The largest size that was measured.
    pub fn last(&self) -> Option<usize> {
        self.values.last().map(|&(size, _)| size)
    }

    /// The value at `size`; none where nothing was measured. Behind the largest size it goes on as it
    /// rose on the whole, but never falls.
    pub fn at(&self, size: usize) -> Option<f64> {
        let (first, last) = (self.values.first()?, self.values.last()?);
        let above = self.values.partition_point(|&(at, _)| at < size);
        Some(match self.values.get(above) {
            None if first.0 == last.0 => last.1,
            None => line(first, last, size).max(last.1),
            Some(&(at, value)) if at == size || above == 0 => value,
            Some(pair) => line(&self.values[above - 1], pair, size),
        })
    }
}

fn line(&(x0, y0): &(usize, f64), &(x1, y1): &(usize, f64), x: usize) -> f64 {
    let share = (x as f64 - x0 as f64) / (x1 as f64 - x0 as f64);
    y0 + share * (y1 - y0)
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
