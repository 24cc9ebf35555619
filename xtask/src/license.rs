//! The SPDX expressions in the `license` fields of manifests.

use std::iter::Peekable;

/// Returns whether the expression can be satisfied by allowed licences only. `/` means `OR`, as in old manifests. An
/// empty or malformed expression is not allowed.
pub(crate) fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut parser = Parser { words: spaced.split_whitespace().peekable(), allowed };
    parser.any() && parser.words.next().is_none()
}

struct Parser<'a, W: Iterator<Item = &'a str>> {
    words: Peekable<W>,
    allowed: &'a [String],
}

impl<'a, W: Iterator<Item = &'a str>> Parser<'a, W> {
    /// `a OR b`, which binds less than `AND`.
    fn any(&mut self) -> bool {
        let mut allowed = self.all();
        while self.takes("OR") {
            allowed |= self.all();
        }
        allowed
    }

    /// `a AND b`.
    fn all(&mut self) -> bool {
        let mut allowed = self.one();
        while self.takes("AND") {
            allowed &= self.one();
        }
        allowed
    }

    /// A licence, with its exception if it has one, or an expression in parentheses.
    fn one(&mut self) -> bool {
        if self.takes("(") {
            let allowed = self.any();
            return self.takes(")") && allowed;
        }
        let mut license = self.words.next().unwrap_or_default().to_owned();
        if self.takes("WITH") {
            license = format!("{license} WITH {}", self.words.next().unwrap_or_default());
        }
        self.allowed.contains(&license)
    }

    fn takes(&mut self, word: &str) -> bool {
        self.words.next_if(|next| *next == word).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(expression: &str) -> bool {
        is_allowed(expression, &["MIT".to_owned(), "Apache-2.0".to_owned()])
    }

    #[test]
    fn one_choice_is_enough_and_all_conditions_must_hold() {
        assert!(allowed("MIT"));
        assert!(allowed("GPL-3.0-only OR MIT"));
        assert!(allowed("BSL-1.0 / MIT"));
        assert!(allowed("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT"));
        assert!(!allowed("Apache-2.0 WITH LLVM-exception"));
        assert!(!allowed("MIT AND ISC"));
        assert!(allowed("(MIT OR ISC) AND Apache-2.0"));
        assert!(allowed("MIT OR ISC AND Zlib"));
        assert!(!allowed("(MIT OR ISC) AND Zlib"));
    }

    #[test]
    fn a_malformed_expression_is_not_allowed() {
        assert!(!allowed(""));
        assert!(!allowed("(MIT"));
        assert!(!allowed("MIT Apache-2.0"));
        assert!(!allowed("MIT AND"));
    }
}
