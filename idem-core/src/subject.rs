//! Subject patterns in NATS syntax.
//!
//! A subject consists of tokens separated by dots. In a pattern, `*` matches exactly one token, and `>` at the end
//! matches one or more.

/// Matches any one token.
const ONE: &str = "*";
/// Matches one or more tokens at the end.
const REST: &str = ">";

/// Returns whether the pattern matches the subject.
pub(crate) fn matches(pattern: &str, subject: &str) -> bool {
    let mut tokens = subject.split('.');
    for wanted in pattern.split('.') {
        match (wanted, tokens.next()) {
            (_, None) => return false,
            (REST, Some(_)) => return true,
            (ONE, Some(_)) => {}
            (wanted, Some(token)) if wanted == token => {}
            _ => return false,
        }
    }
    tokens.next().is_none()
}

/// Returns whether some subject matches both patterns.
pub(crate) fn overlap(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one.split('.'), other.split('.'));
    loop {
        match (one.next(), other.next()) {
            (None, None) => return true,
            (None, Some(_)) | (Some(_), None) => return false,
            (Some(REST), Some(_)) | (Some(_), Some(REST)) => return true,
            (Some(a), Some(b)) if a == b || a == ONE || b == ONE => {}
            _ => return false,
        }
    }
}

/// Returns what is wrong with a pattern, if anything: it would match nothing, or not what it seems to match.
pub(crate) fn flaw(pattern: &str) -> Option<String> {
    let tokens: Vec<&str> = pattern.split('.').collect();
    let inside = |token: &&str| token.len() > 1 && token.contains(['*', '>', '#']);
    if tokens.contains(&"") {
        return Some("it has an empty token: write a token before and after each dot".to_owned());
    }
    if tokens.contains(&"#") {
        return Some("`#` is no wildcard here: write `>` at the end for one token or more, and `*` for one".to_owned());
    }
    if tokens[..tokens.len() - 1].contains(&REST) {
        return Some("`>` stands for all tokens that follow, and so at the end: write `*` for a single one".to_owned());
    }
    tokens.iter().find(|token| inside(token)).map(|token| {
        format!("in its token `{token}` a wildcard is beside something else: `*` and `>` each stand for whole tokens")
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pattern_matches_token_by_token() {
        for (pattern, subject, expected) in [
            ("orders.paid", "orders.paid", true),
            ("orders.paid", "orders", false),
            ("orders.paid", "orders.paid.again", false),
            ("orders.paid", "Orders.paid", false),
            ("orders.*.paid", "orders.42.paid", true),
            ("orders.*.paid", "orders.42.7.paid", false),
            ("orders.*.paid", "orders.paid", false),
            ("orders.*", "orders.", true),
            ("*", "orders", true),
            ("*", "orders.paid", false),
            ("orders.>", "orders.42.paid", true),
            ("orders.>", "orders.42", true),
            ("orders.>", "orders", false),
            ("*.>", "orders", false),
            (">", "orders.42.paid", true),
            (">", "", true),
            ("orders.*.>", "orders.42.paid", true),
        ] {
            assert_eq!(matches(pattern, subject), expected, "{pattern} and {subject}");
        }
    }

    #[test]
    fn patterns_overlap_where_one_subject_is_of_both() {
        for (one, other, expected) in [
            ("orders.paid", "orders.paid", true),
            ("orders.paid", "orders.sent", false),
            ("orders.*.paid", "orders.42.*", true),
            ("orders.*.paid", "orders.*.sent", false),
            ("orders.>", "orders.*.paid", true),
            ("orders.>", "orders", false),
            ("orders.>", "invoices.>", false),
            ("*.paid", "orders.>", true),
            (">", "orders", true),
        ] {
            assert_eq!((overlap(one, other), overlap(other, one)), (expected, expected), "{one} and {other}");
        }
    }

    #[test]
    fn a_pattern_that_would_not_match_what_it_seems_to_has_a_flaw() {
        for (pattern, why) in [
            ("", "empty"),
            ("orders..paid", "empty"),
            (".orders", "empty"),
            ("orders.#", "write `>`"),
            ("orders.>.paid", "at the end"),
            ("orders.4*.paid", "whole tokens"),
            ("orders.paid>", "whole tokens"),
        ] {
            let flaw = flaw(pattern).unwrap();
            assert!(flaw.contains(why), "{pattern}: {flaw}");
        }
        for pattern in [">", "*", "orders", "orders.*.paid", "orders.*.>", "order_paid"] {
            assert_eq!(flaw(pattern), None, "{pattern}");
        }
    }

    proptest! {
        /// Few distinct tokens, so that many subjects match.
        #[test]
        fn a_subject_of_two_patterns_is_their_overlap(
            one in "[ab*](\\.[ab*]){0,2}(\\.>)?",
            other in "[ab*](\\.[ab*]){0,2}(\\.>)?",
            subject in "[ab](\\.[ab]){0,3}",
        ) {
            prop_assert!(flaw(&one).is_none() && flaw(&other).is_none());
            prop_assert!(!(matches(&one, &subject) && matches(&other, &subject)) || overlap(&one, &other));
            let same = one.replace('*', "a").replace('>', "a.b");
            prop_assert!(matches(&one, &same));
        }
    }
}
