//! By how much a number grows over a run, whatever single values do.

use crate::samples::median;

/// Returns the growth from the first value to the last by the Theil-Sen estimator, which is the median of the slopes
/// between all pairs of values: up to 29 % of them may be anything (Sen 1968). Zero for fewer than two values.
pub(crate) fn growth(values: &[f64]) -> f64 {
    let mut slopes = Vec::new();
    for (at, value) in values.iter().enumerate() {
        for (distance, later) in values[at + 1..].iter().enumerate() {
            slopes.push((later - value) / (distance + 1) as f64);
        }
    }
    if slopes.is_empty() { 0.0 } else { median(slopes) * (values.len() - 1) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_growth_is_found_beside_noise_and_outliers() {
        let mut values: Vec<f64> =
            (0..50).map(|minute| f64::from(minute) * 0.1 + f64::from(minute % 3) * 0.05).collect();
        values[20] = 100.0;
        values[49] = 0.0;
        assert!((4.7..=5.1).contains(&growth(&values)), "{}", growth(&values));
    }

    #[test]
    fn noise_without_a_trend_is_not_growth() {
        let mut values = vec![5.0; 50];
        values[49] = 9.0;
        assert_eq!([growth(&values), growth(&[1.0]), growth(&[])], [0.0; 3]);
    }
}
