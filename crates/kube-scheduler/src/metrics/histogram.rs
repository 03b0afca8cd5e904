//! Values counted by how large they are.

#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// The largest value of each bucket, and how many came into it and no smaller one.
    buckets: Vec<(f64, u64)>,
    above: u64,
    sum: f64,
}

impl Histogram {
    /// Buckets whose bounds grow by a factor.
    pub fn exponential(first: f64, factor: f64, count: usize) -> Histogram {
        let bounds = std::iter::successors(Some(first), |bound| Some(bound * factor)).take(count);
        Histogram { buckets: bounds.map(|bound| (bound, 0)).collect(), above: 0, sum: 0.0 }
    }

    pub fn observe(&mut self, value: f64) {
        self.sum += value;
        match self.buckets.iter_mut().find(|(bound, _)| value <= *bound) {
            Some((_, count)) => *count += 1,
            None => self.above += 1,
        }
    }

    pub fn count(&self) -> u64 {
        self.above + self.buckets.iter().map(|(_, count)| count).sum::<u64>()
    }

    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Each bound as text, and how many values are not above it.
    pub fn buckets(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        let mut below = 0;
        let bounded = self.buckets.iter().map(move |(bound, count)| {
            below += count;
            (bound.to_string(), below)
        });
        bounded.chain([("+Inf".to_owned(), self.count())])
    }
}
