//! The results of the rounds.

use std::collections::BTreeMap;

use crate::plan::Case;

/// One run of one case.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    /// Messages per second.
    pub(crate) rate: f64,
    /// Microseconds of the client's CPU time per message.
    pub(crate) client: f64,
    /// Bytes of write-ahead log per message.
    pub(crate) wal: f64,
    /// Requests to SQS per thousand messages: receives, deletes, changes of visibility, and others.
    pub(crate) requests: [f64; 4],
}

/// All samples, by case, in the order of the rounds.
#[derive(Debug, Default)]
pub(crate) struct Samples(BTreeMap<Case, Vec<Sample>>);

impl Samples {
    pub(crate) fn add(&mut self, case: Case, sample: Sample) {
        self.0.entry(case).or_default().push(sample);
    }

    /// Removes a failed case entirely: half of its rounds could not be compared.
    pub(crate) fn forget(&mut self, case: &Case) {
        self.0.remove(case);
    }

    pub(crate) fn of(&self, case: &Case) -> &[Sample] {
        self.0.get(case).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn median(&self, case: &Case, of: impl Fn(&Sample) -> f64) -> Option<f64> {
        let values: Vec<f64> = self.of(case).iter().map(of).collect();
        (!values.is_empty()).then(|| median(values))
    }

    /// Returns the median of the messages per second.
    pub(crate) fn rate(&self, case: &Case) -> Option<f64> {
        self.median(case, |sample| sample.rate)
    }

    /// Returns the median of the rounds' ratios: both sides of one ratio ran within the same round.
    pub(crate) fn ratio(&self, case: &Case, to: &Case) -> Option<f64> {
        let ratios: Vec<f64> = self.of(case).iter().zip(self.of(to)).map(|(case, to)| case.rate / to.rate).collect();
        (!ratios.is_empty()).then(|| median(ratios))
    }
}

/// Returns the middle value, or the mean of the middle two; NaN if there are no values.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// Returns the lowest and the highest value.
pub(crate) fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::MAX, 0.0), |(low, high): (f64, f64), value| (low.min(value), high.max(value)))
}

/// Returns the smallest value that is not below this part of the sorted values; NaN if there are none.
pub(crate) fn quantile(sorted: &[f64], part: f64) -> f64 {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Side;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!((quantile(&values, 0.5), quantile(&values, 0.99)), (100.0, 198.0));
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn a_ratio_is_that_of_the_rounds_and_not_that_of_the_medians() {
        let (one, other) = (Case::new(Side::Idem, 1), Case::new(Side::HandWritten, 1));
        let mut samples = Samples::default();
        // The machine was twice as fast in the second round, for both.
        for (rate, hand_written) in [(100.0, 50.0), (200.0, 100.0), (400.0, 100.0)] {
            samples.add(one, Sample { rate, ..Sample::default() });
            samples.add(other, Sample { rate: hand_written, ..Sample::default() });
        }
        assert_eq!(samples.ratio(&one, &other), Some(2.0));
        assert_eq!(samples.ratio(&one, &Case::new(Side::Batch(100), 1)), None);
    }
}
