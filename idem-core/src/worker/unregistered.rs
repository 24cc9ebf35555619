//! Handlers that a worker does not have: their rows in the inbox would never run, and one of them may be another under a new
//! name, whose messages would be new.

use std::time::Duration;

use crate::store::{KnownHandler, Remedies, SEEN_RECENTLY};

/// Returns a text for each handler with rows that this worker does not have, and whether a worker has had it within a day. If
/// none has, possibly no worker will ever run the rows, and this one must not start. Otherwise the handler belongs to another
/// worker, or to a release that was rolled back: those rows only cause a warning. `names`: the handlers of this worker.
pub(super) fn rows_of_others(
    consumer: &str,
    names: &[&str],
    known: &[KnownHandler],
    cures: impl Fn(&str) -> Remedies,
) -> Vec<(String, bool)> {
    // The empty name stands for no handler, and every worker has it.
    let strange = |known: &&KnownHandler| !known.name.is_empty() && !names.contains(&known.name.as_str());
    let text = |known: &KnownHandler| {
        let (KnownHandler { name: handler, seen, .. }, Remedies { part, dead_letter, .. }) =
            (known, cures(&known.name));
        let recently = *seen <= SEEN_RECENTLY;
        let seen = if recently {
            format!("and which a worker had {} ago: they wait for that one", ago(*seen))
        } else {
            format!("and which no worker has had for {}: the rows will not run", ago(*seen))
        };
        let text = format!(
            "the inbox has rows of {consumer:?} for the handler {handler:?}, which this worker does not have, {seen}. If a \
             release was rolled back, its next start runs those that are scheduled. If the handler has another name now, give it \
             the old one too, `#[idempotent(formerly = {handler:?})]`. If another service or worker has the handler, give each \
             its own consumer name, stop its workers, and move the handler with its claims: {part}. If the rows are not needed, \
             turn the scheduled ones into dead letters: {dead_letter}; then discard them, `Inbox::list` with \
             `Filter::new().handler({handler:?})` and `Inbox::discard`. To leave them where they are, start with \
             `.allow_unregistered_rows()`"
        );
        (text, recently)
    };
    known.iter().filter(|known| known.has_rows).filter(strange).map(text).collect()
}

/// Formats a duration, from two minutes on without its seconds.
fn ago(time: Duration) -> String {
    let seconds = time.as_secs();
    crate::age::shown(Duration::from_secs(if seconds < 120 { seconds } else { seconds / 60 * 60 }))
}

/// Returns a warning for each handler that this worker lacks and that has claims, if a handler of this worker has no
/// history and needs claims. It is no error, and names none of this worker's handlers: handlers are also
/// removed, added, and divided among workers. `ours`: the names of the handlers, and whether they are natural, and so need no
/// claims. `reports_rows`: those with rows have been reported.
///
/// Claims that were pruned do not count: a copy that old is new under the old name, too. So a handler that was removed
/// causes no warning after its retention.
pub(super) fn renamed(
    consumer: &str,
    ours: &[(&str, bool)],
    known: &[KnownHandler],
    reports_rows: bool,
) -> Vec<String> {
    let is_ours = |old: &&KnownHandler| ours.iter().any(|(name, _)| *name == old.name);
    let is_reported = |old: &&KnownHandler| reports_rows && old.has_rows;
    let is_new = |(name, _): &&(&str, bool)| !known.iter().any(|known| known.has_processed && known.name == *name);
    let is_needed =
        |old: &&KnownHandler| old.has_claims && ours.iter().filter(is_new).any(|(_, is_natural)| !is_natural);
    let text = |KnownHandler { name: handler, seen, .. }: &KnownHandler| {
        format!(
            "{consumer:?} has claims of the handler {handler:?}, which this worker does not have and which a worker had {} ago. \
             If a handler of this worker is that one under another name, its messages count as new: one that was processed runs \
             again if it is delivered again. Then stop the worker before it processes a message, and give the \
             handler its old name, `#[idempotent(formerly = {handler:?})]`. If the handler was removed or belongs to another \
             worker, no action is needed",
            ago(*seen),
        )
    };
    let missing = known.iter().filter(|old| !is_ours(old) && !is_reported(old) && is_needed(old));
    missing.map(text).collect()
}

#[cfg(test)]
mod tests {
    use crate::store::HandlerId;

    use super::*;

    fn cures(handler: &str) -> Remedies {
        let cure = |what| format!("{what} {handler}");
        Remedies { part: cure("PART"), dead_letter: cure("BURY"), ..Remedies::default() }
    }

    fn known(name: &str, seen: Duration) -> KnownHandler {
        KnownHandler {
            id: HandlerId(1),
            consumer: "billing".to_owned(),
            name: name.to_owned(),
            formerly: Vec::new(),
            seen,
            retention: None,
            has_claims: false,
            has_processed: false,
            has_rows: false,
            namespace: None,
        }
    }

    fn waiting(handler: &str, seen: Duration) -> KnownHandler {
        KnownHandler { has_rows: true, ..known(handler, seen) }
    }

    fn texts(known: &[KnownHandler]) -> Vec<(String, bool)> {
        rows_of_others("billing", &["orders", "invoices"], known, cures)
    }

    const LATE: Duration = SEEN_RECENTLY.saturating_add(Duration::from_secs(1));

    #[test]
    fn a_handler_seen_within_a_day_is_a_warning_with_each_remedy() {
        let rows = [waiting("refunds", SEEN_RECENTLY), waiting("orders", LATE), waiting("", LATE)];
        let texts = texts(&rows);
        let [(text, true)] = &texts[..] else { panic!("{texts:?}") };
        for part in [
            "\"billing\"",
            "\"refunds\"",
            "1 day ago",
            "rolled back",
            "formerly = \"refunds\"",
            "PART refunds",
            "BURY refunds",
            "allow_unregistered_rows",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }

    #[test]
    fn a_handler_not_seen_for_a_day_is_refused_with_each_remedy() {
        let rows = [waiting("gone", LATE), waiting("refunds", Duration::ZERO)];
        let texts = texts(&rows);
        let [(refused, false), (_, true)] = &texts[..] else { panic!("{texts:?}") };
        for part in ["\"gone\"", "no worker has had for 1 day", "formerly = \"gone\"", "PART gone", "BURY gone"] {
            assert!(refused.contains(part), "{part:?} is not in {refused:?}");
        }
    }

    fn history(handler: &str, has_claims: bool) -> KnownHandler {
        KnownHandler { has_claims, has_processed: true, ..known(handler, Duration::from_secs(180)) }
    }

    fn ours(name: &str) -> (&str, bool) {
        (name, false)
    }

    #[test]
    fn claims_of_a_handler_that_is_gone_are_a_warning_that_names_no_other_handler() {
        let ours = [ours("orders"), ours("invoices")];
        let texts = renamed("billing", &ours, &[history("orders", true), history("refunds", true)], true);
        let [text] = &texts[..] else { panic!("{texts:?}") };
        for part in ["\"billing\"", "\"refunds\"", "3m ago", "formerly = \"refunds\"", "count as new"] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
        assert!(!text.contains("invoices"), "{text}");
    }

    #[test]
    fn a_natural_handler_needs_no_claims_of_another_one() {
        let ours = [ours("orders"), ("invoices", true)];
        let texts = renamed("billing", &ours, &[history("orders", true), history("refunds", true)], true);
        assert_eq!(texts, Vec::<String>::new());
    }

    #[test]
    fn nothing_is_reported_without_a_new_name_or_a_missing_one() {
        let all = ["orders", "invoices", "refunds"].map(|name| history(name, true));
        let reported = KnownHandler { has_rows: true, ..history("refunds", true) };
        let cases: [&[KnownHandler]; 4] = [&all, &all[..1], &[history("refunds", false)], &[reported]];
        for known in cases {
            let texts = renamed("billing", &[ours("orders"), ours("invoices")], known, true);
            assert_eq!(texts, Vec::<String>::new(), "{known:?}");
        }
    }
}
