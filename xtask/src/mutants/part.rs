//! A share of the mutants, so that several machines try them all.

use std::ops::Range;
use std::str::FromStr;

use anyhow::{Context, Error, Result, ensure};

/// One of several parts that have about the same size. Each mutant belongs to exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// From 1.
    number: usize,
    of: usize,
}

impl Part {
    /// Returns the places of its mutants in a list of this length.
    pub(crate) fn places(self, length: usize) -> Range<usize> {
        (self.number - 1) * length / self.of..self.number * length / self.of
    }
}

impl FromStr for Part {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (number, of) = text.split_once('/').context("a part is written K/N, as in 3/12")?;
        let part = Self { number: number.parse()?, of: of.parse()? };
        ensure!((1..=part.of).contains(&part.number), "the parts of {of} are 1/{of} to {of}/{of}");
        Ok(part)
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mutant_is_in_exactly_one_part_and_the_parts_are_of_one_size() -> Result<()> {
        for length in [1, 11, 12, 81, 100] {
            let parts = (1..=12).map(|number| Ok(format!("{number}/12").parse::<Part>()?.places(length)));
            let parts = parts.collect::<Result<Vec<_>>>()?;
            assert_eq!(parts.iter().cloned().flatten().collect::<Vec<_>>(), (0..length).collect::<Vec<_>>());
            let size = length.div_ceil(12);
            assert!(parts.iter().all(|part| part.len() == size || part.len() + 1 == size));
        }
        Ok(())
    }

    #[test]
    fn a_part_that_does_not_exist_is_refused() {
        for text in ["0/12", "13/12", "1/0", "3", "a/b"] {
            assert!(text.parse::<Part>().is_err(), "{text}");
        }
    }
}
