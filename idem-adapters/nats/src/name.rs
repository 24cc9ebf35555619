//! Checks the names of streams, consumers and domains.

/// Returns why NATS rejects this name of a stream or a consumer, or `None` if it is valid: the names are tokens of
/// subjects and parts of paths (<https://docs.nats.io/running-a-nats-service/nats_admin/jetstream_admin/naming>).
pub(crate) fn invalid(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("is empty");
    }
    if name.len() > 255 {
        return Some("has more than 255 bytes");
    }
    let refused = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '.' | '*' | '>' | '/' | '\\');
    name.contains(refused).then_some("has white space or one of . * > / \\ in it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_nats_does_not_take_are_known() {
        for name in ["", "a.b", "a b", "a*", ">", "a/b", "a\\b", "a\u{0}", &"n".repeat(256)] {
            assert!(invalid(name).is_some(), "{name}");
        }
        for name in ["ORDERS", "billing-v2", "b_1", &"n".repeat(255)] {
            assert_eq!(invalid(name), None, "{name}");
        }
    }
}
