//! Handlers that may be others under a new name: their messages would be new, or their latest versions unknown.

use crate::store::{Cures, HandlerRows, History};

use super::unregistered::{ago, others, with_versions};

/// The handlers that a worker has, to find claims and latest versions of one that it has under another name.
pub(super) struct Renamed<'a> {
    pub(super) consumer: &'a str,
    pub(super) handlers: &'a [Ours<'a>],
}

/// A handler of the worker.
pub(super) struct Ours<'a> {
    pub(super) name: &'a str,
    /// Whether it needs no claims.
    pub(super) is_natural: bool,
    /// Whether it needs latest versions.
    pub(super) advances: bool,
}

impl Ours<'_> {
    /// Returns whether it needs what this handler has left.
    fn needs(&self, old: &History) -> bool {
        old.has_claims && !self.is_natural || old.has_versions && self.advances
    }
}

impl Renamed<'_> {
    /// Called at the start. Warns of a handler that this worker lacks and that has claims or latest versions, if a handler of
    /// this worker needs them. It is no error, since handlers are also removed, added, and divided among workers.
    ///
    /// Claims are needed by a handler without a history, and told of unless the handler is in `waiting`, which has been
    /// reported. Those that were pruned do not count: a copy that old is new under the old name, too. So a handler that was
    /// removed causes no warning after its retention.
    ///
    /// Latest versions are kept forever, and may be under two names: a release with another name was rolled back, or its
    /// first start was not heeded. So they are told of until they are merged or deleted. If the old handler is in
    /// `waiting`, and the new one has processed nothing, they are not merged: the rows may also run under the old name, and
    /// would not find them. The rename moves both.
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
        let is_reported = |handler: &str| waiting.iter().any(|row| row.handler == handler);
        let is_ours = |handler: &str| self.handlers.iter().any(|ours| ours.name == handler);
        let known = |name: &str| histories.iter().find(|history| history.handler == name);
        let is_new = |ours: &&Ours<'_>| known(ours.name).is_none_or(|history| !history.has_processed);
        let cures = with_versions(histories, cures);
        let text = |old: &History| {
            let needing = self.handlers.iter().filter(|ours| ours.needs(old));
            let new: Vec<&str> = needing.filter(is_new).map(|ours| ours.name).collect();
            if let Some(&first) = new.first().filter(|_| !is_reported(&old.handler)) {
                return Some(self.text(old, &new, &cures(&old.handler, first).rename));
            }
            let advancing = self.handlers.iter().filter(|ours| old.has_versions && ours.advances);
            let advancing: Vec<&Ours<'_>> = advancing.collect();
            let new: Vec<&str> = advancing.iter().copied().filter(is_new).map(|ours| ours.name).collect();
            if let Some(&first) = new.first() {
                return Some(self.text_beside_rows(old, &new, &cures(&old.handler, first).rename));
            }
            let advancing: Vec<&str> = advancing.iter().map(|ours| ours.name).collect();
            let first = *advancing.first()?;
            Some(self.text_of_two(old, &advancing, &cures(&old.handler, first)))
        };
        histories.iter().filter(|old| !is_ours(&old.handler)).filter_map(text).collect()
    }

    /// Returns the warning for a handler whose latest versions cannot be kept by a rename, because the new name has a
    /// history.
    fn text_of_two(&self, old: &History, ours: &[&str], cures: &Cures) -> String {
        let (consumer, History { handler, seen, .. }, Cures { merge, forget, .. }) = (self.consumer, old, cures);
        format!(
            "{consumer:?} has latest versions of the handler {handler:?}, which this worker does not have and which a worker \
             had {} ago. If the handler is one of {ours:?} now, that one does not know these versions, so a late message \
             replaces a newer state. Stop the workers of {consumer:?} before they process a message, and merge the versions, \
             of which the higher ones win{}: {merge}. If the handler was removed, delete its versions: {forget}. If it belongs \
             to another worker, no action is needed",
            ago(*seen),
            others(ours),
        )
    }

    /// Returns the warning for the latest versions of a handler that has inbox rows, which were reported.
    fn text_beside_rows(&self, old: &History, new: &[&str], rename: &str) -> String {
        let (consumer, History { handler, seen, .. }) = (self.consumer, old);
        format!(
            "{consumer:?} has latest versions of the handler {handler:?}, beside its inbox rows. This worker does not have \
             that handler, and a worker had it {} ago. If it has another name now, the rename moves its latest versions with \
             the rows; until then a late message replaces a newer state. Stop the workers of {consumer:?} before they \
             process a message, and rename it{}: {rename}. Or let it keep the old name, \
             `#[idempotent(name = {handler:?})]`. If the handler was removed or belongs to another worker, the versions need \
             no action",
            ago(*seen),
            others(new),
        )
    }

    fn text(&self, old: &History, new: &[&str], rename: &str) -> String {
        let (consumer, History { handler, seen, .. }) = (self.consumer, old);
        let what = match (old.has_claims, old.has_versions) {
            (true, true) => "claims and latest versions",
            (true, false) => "claims",
            (false, _) => "latest versions",
        };
        let versions = match old.has_versions {
            true => " No version of any entity is known until then either, so a late message replaces a newer state.",
            false => "",
        };
        format!(
            "{consumer:?} has {what} of the handler {handler:?}, which this worker does not have and which a worker had {} ago, \
             and no history of {new:?}. If the handler has another name now, its messages count as new until the {what} have \
             that name, so a message that was processed runs again if it is delivered again.{versions} Stop the workers of \
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

    const fn ours(name: &str) -> Ours<'_> {
        Ours { name, is_natural: false, advances: false }
    }

    const OURS: Renamed<'_> =
        Renamed { consumer: "billing", handlers: &[ours("orders"), ours("invoices"), ours("bills")] };

    fn cures(handler: &str, new: &str) -> Cures {
        let [rename, merge] = ["RENAME", "MERGE"].map(|cure| format!("{cure} {handler} {new}"));
        Cures { rename, merge, forget: format!("FORGET {handler}"), ..Cures::default() }
    }

    fn history(handler: &str, has_claims: bool) -> History {
        History::new(handler, Duration::from_secs(180), has_claims)
    }

    #[test]
    fn claims_of_a_handler_that_is_gone_are_a_warning_with_the_rename() {
        let texts = OURS.texts(&[history("orders", true), history("refunds", true)], &[], cures);
        let [text] = &texts[..] else { panic!("{texts:?}") };
        for part in ["\"billing\"", "\"refunds\"", "3m ago", "RENAME refunds invoices", "[\"bills\"]", "count as new"] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
        assert!(!text.contains("version"), "{text}");
    }

    #[test]
    fn a_natural_handler_needs_the_latest_versions_of_another_one_and_no_claims() {
        let natural = |advances| Ours { is_natural: true, advances, ..ours("invoices") };
        let versions = History { has_versions: true, ..history("refunds", false) };
        for (advances, old, expected) in [
            (false, history("refunds", true), 0),
            (true, history("refunds", true), 0),
            (false, versions.clone(), 0),
            (true, versions, 1),
        ] {
            let renamed = Renamed { handlers: &[ours("orders"), natural(advances)], ..OURS };
            let texts = renamed.texts(&[history("orders", true), old.clone()], &[], cures);
            assert_eq!(texts.len(), expected, "{advances} {old:?}");
            assert!(texts.iter().all(|text| text.contains("RENAME refunds invoices") && text.contains("newer state")));
        }
    }

    #[test]
    fn latest_versions_are_reported_with_the_merge_where_the_new_name_has_a_history() {
        let advancing = [ours("orders"), Ours { advances: true, ..ours("invoices") }];
        let renamed = Renamed { handlers: &advancing, ..OURS };
        let old = History { has_versions: true, ..history("refunds", true) };
        let rows = [HandlerRows::new("refunds", Duration::ZERO)];
        let all = [history("orders", true), history("invoices", true), old];
        // Without inbox rows of the old name, and with some.
        let cases: [&[HandlerRows]; 2] = [&[], &rows];
        for waiting in cases {
            let texts = renamed.texts(&all, waiting, cures);
            let [text] = &texts[..] else { panic!("{texts:?}") };
            for part in ["\"refunds\"", "MERGE refunds invoices", "FORGET refunds", "newer state"] {
                assert!(text.contains(part), "{part:?} is not in {text:?}");
            }
            assert!(!text.contains("RENAME"), "{text}");
        }
    }

    /// If the handler then kept its old name, merged versions would not be there for its rows.
    #[test]
    fn latest_versions_beside_inbox_rows_are_reported_with_the_rename_and_no_merge() {
        let advancing = [ours("orders"), Ours { advances: true, ..ours("invoices") }];
        let renamed = Renamed { handlers: &advancing, ..OURS };
        let old = History { has_versions: true, ..history("refunds", true) };
        let rows = [HandlerRows::new("refunds", Duration::ZERO)];
        let texts = renamed.texts(&[history("orders", true), old], &rows, cures);
        let [text] = &texts[..] else { panic!("{texts:?}") };
        for part in ["\"refunds\"", "RENAME refunds invoices", "name = \"refunds\"", "newer state"] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
        assert!(!text.contains("MERGE") && !text.contains("FORGET"), "{text}");
    }

    #[test]
    fn latest_versions_alone_are_merged_and_make_no_history() {
        let advancing = [Ours { advances: true, ..ours("invoices") }];
        let renamed = Renamed { handlers: &advancing, ..OURS };
        let versions = |handler| History { has_versions: true, has_processed: false, ..history(handler, false) };
        // The missing name has nothing else: a handler had that name for a while, and the versions were merged into it.
        let texts = renamed.texts(&[history("invoices", true), versions("refunds")], &[], cures);
        assert!(matches!(&texts[..], [text] if text.contains("MERGE refunds invoices")), "{texts:?}");
        // The new name has nothing else: they were filled by hand.
        let texts = renamed.texts(&[versions("invoices"), history("refunds", true)], &[], cures);
        let cure = "MERGE invoices refunds; RENAME refunds invoices";
        assert!(matches!(&texts[..], [text] if text.contains(cure)), "{texts:?}");
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
