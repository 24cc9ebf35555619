//! Handlers that may be others under a new name: their messages would be new.

use crate::store::{Cures, HandlerRows, History};

use super::unregistered::{ago, others};

/// The handlers that a worker has, to find claims of one that it has under another name.
pub(super) struct Renamed<'a> {
    pub(super) consumer: &'a str,
    /// The names of its handlers.
    pub(super) names: &'a [&'a str],
    /// Those of them that are natural, which need no claims.
    pub(super) natural: &'a [&'a str],
}

impl Renamed<'_> {
    /// Called at the start. Warns of a handler that this worker lacks and that has claims, if a handler of this worker has
    /// none yet. It is no error, since handlers are also removed, added, and divided among workers. A handler in `waiting`
    /// has been told of already.
    ///
    /// Claims that were pruned do not count: a copy that old is new under the old name, too. So a handler that was removed
    /// causes no warning after its retention.
    pub(super) fn check(&self, histories: &[History], waiting: &[HandlerRows], cures: impl Fn(&str, &str) -> Cures) {
        for text in self.texts(histories, waiting, cures) {
            tracing::warn!("{text}");
        }
    }

    /// Returns the warning for each handler that may have another name now.
    fn texts(
        &self,
        histories: &[History],
        waiting: &[HandlerRows],
        cures: impl Fn(&str, &str) -> Cures,
    ) -> Vec<String> {
        let has_none = |name: &&str| histories.iter().all(|history| history.handler != *name);
        let is_new = |name: &&str| !self.natural.contains(name) && has_none(name);
        let new: Vec<&str> = self.names.iter().copied().filter(is_new).collect();
        let [first, ..] = new[..] else { return Vec::new() };
        let is_reported = |handler: &str| waiting.iter().any(|row| row.handler == handler);
        let lacks = |old: &&History| !self.names.contains(&old.handler.as_str()) && !is_reported(&old.handler);
        let old = histories.iter().filter(|old| old.has_claims).filter(lacks);
        old.map(|old| self.text(old, &new, &cures(&old.handler, first).rename)).collect()
    }

    fn text(&self, old: &History, new: &[&str], rename: &str) -> String {
        let (consumer, History { handler, seen, .. }) = (self.consumer, old);
        format!(
            "{consumer:?} has claims of the handler {handler:?}, which this worker does not have and which a worker had {} ago, \
             and no claims of {new:?}. If the handler has another name now, its messages count as new until the claims have \
             that name, so a message that was processed runs again if it is delivered again: stop the workers of \
             {consumer:?} before they process a message, and rename it{}: {rename}. Or let it keep the old name, \
             `#[idempotent(name = {handler:?})]`. If the handler was removed or belongs to another worker, no action is needed",
            ago(*seen),
            others(new),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const OURS: Renamed<'_> = Renamed { consumer: "billing", names: &["orders", "invoices", "bills"], natural: &[] };

    fn cures(handler: &str, new: &str) -> Cures {
        Cures { rename: format!("RENAME {handler} {new}"), ..Cures::default() }
    }

    fn history(handler: &str, has_claims: bool) -> History {
        History { handler: handler.to_owned(), seen: Duration::from_secs(180), has_claims }
    }

    #[test]
    fn claims_of_a_handler_that_is_gone_are_a_warning_with_the_rename() {
        let texts = OURS.texts(&[history("orders", true), history("refunds", true)], &[], cures);
        let [text] = &texts[..] else { panic!("{texts:?}") };
        for part in ["\"billing\"", "\"refunds\"", "3m ago", "RENAME refunds invoices", "[\"bills\"]", "count as new"] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }

    #[test]
    fn a_natural_handler_is_no_other_one_under_a_new_name() {
        let natural = Renamed { names: &["orders", "invoices"], natural: &["invoices"], ..OURS };
        let histories = [history("orders", true), history("refunds", true)];
        assert_eq!(natural.texts(&histories, &[], cures), Vec::<String>::new());
    }

    #[test]
    fn nothing_is_reported_without_a_new_name_or_a_missing_one() {
        let all = ["orders", "invoices", "bills", "refunds"].map(|name| history(name, true));
        let rows = [HandlerRows::new("refunds", Duration::ZERO)];
        let cases: [(&[History], &[HandlerRows]); 4] =
            [(&all, &[]), (&all[..1], &[]), (&[history("refunds", false)], &[]), (&all[3..], &rows)];
        for (histories, waiting) in cases {
            assert_eq!(OURS.texts(histories, waiting, cures), Vec::<String>::new(), "{histories:?}");
        }
    }
}
