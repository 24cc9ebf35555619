//! Handlers that are not there any more, and may be others under a new name: their messages would be new.

use crate::store::{HandlerRows, History};

use super::unregistered::ago;

/// A handler of the worker.
pub(super) struct Ours<'a> {
    pub(super) name: &'a str,
    /// Whether it needs no claims.
    pub(super) is_natural: bool,
}

/// Returns a warning for each handler that this worker lacks and that has claims, if a handler of this worker has no
/// history and needs claims. It is no error, and names none of this worker's handlers: handlers are also
/// removed, added, and divided among workers. Those in `waiting` have been reported.
///
/// Claims that were pruned do not count: a copy that old is new under the old name, too. So a handler that was removed
/// causes no warning after its retention.
pub(super) fn renamed(
    consumer: &str,
    ours: &[Ours<'_>],
    histories: &[History],
    waiting: &[HandlerRows],
) -> Vec<String> {
    let is_ours = |old: &&History| ours.iter().any(|ours| ours.name == old.handler);
    let is_reported = |old: &&History| waiting.iter().any(|row| row.handler == old.handler);
    let is_new = |ours: &&Ours<'_>| !histories.iter().any(|known| known.handler == ours.name);
    let is_needed = |old: &&History| old.has_claims && ours.iter().filter(is_new).any(|ours| !ours.is_natural);
    let text = |old: &History| {
        let History { handler, seen, .. } = old;
        format!(
            "{consumer:?} has claims of the handler {handler:?}, which this worker does not have and which a worker had {} ago. \
             If a handler of this worker is that one under another name, its messages count as new: one that was processed runs \
             again if it is delivered again. Then stop the worker before it processes a message, and give the \
             handler its old name, `#[idempotent(formerly = {handler:?})]`. If the handler was removed or belongs to another \
             worker, no action is needed",
            ago(*seen),
        )
    };
    let missing = histories.iter().filter(|old| !is_ours(old) && !is_reported(old) && is_needed(old));
    missing.map(text).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn history(handler: &str, has_claims: bool) -> History {
        History::new(handler, Duration::from_secs(180), has_claims)
    }

    fn ours(name: &str) -> Ours<'_> {
        Ours { name, is_natural: false }
    }

    #[test]
    fn claims_of_a_handler_that_is_gone_are_a_warning_that_names_no_other_handler() {
        let ours = [ours("orders"), ours("invoices")];
        let texts = renamed("billing", &ours, &[history("orders", true), history("refunds", true)], &[]);
        let [text] = &texts[..] else { panic!("{texts:?}") };
        for part in ["\"billing\"", "\"refunds\"", "3m ago", "formerly = \"refunds\"", "count as new"] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
        assert!(!text.contains("invoices"), "{text}");
    }

    #[test]
    fn a_natural_handler_needs_no_claims_of_another_one() {
        let ours = [ours("orders"), Ours { is_natural: true, ..ours("invoices") }];
        let texts = renamed("billing", &ours, &[history("orders", true), history("refunds", true)], &[]);
        assert_eq!(texts, Vec::<String>::new());
    }

    #[test]
    fn nothing_is_reported_without_a_new_name_or_a_missing_one() {
        let all = ["orders", "invoices", "refunds"].map(|name| history(name, true));
        let rows = [HandlerRows::new("refunds", Duration::ZERO)];
        let cases: [(&[History], &[HandlerRows]); 4] =
            [(&all, &[]), (&all[..1], &[]), (&[history("refunds", false)], &[]), (&all[2..], &rows)];
        for (histories, waiting) in cases {
            let texts = renamed("billing", &[ours("orders"), ours("invoices")], histories, waiting);
            assert_eq!(texts, Vec::<String>::new(), "{histories:?}");
        }
    }
}
