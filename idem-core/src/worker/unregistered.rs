//! Inbox rows of handlers that a worker does not have and will therefore never run.

use std::time::Duration;

use crate::Error;
use crate::store::{Cures, HandlerRows, History, SEEN_RECENTLY};

/// The handlers that a worker has, to find rows of handlers that it does not have.
pub(crate) struct Unregistered<'a> {
    pub(crate) consumer: &'a str,
    /// The names of its handlers.
    pub(crate) names: &'a [&'a str],
}

impl Unregistered<'_> {
    /// Called at the start. Rejects rows of a handler that no worker has had for a day, because possibly no worker will
    /// ever run them. A handler that was seen since then belongs to another worker, or to a release that was rolled
    /// back: those rows only cause a warning.
    ///
    /// # Errors
    /// There are such rows. The text names each remedy.
    pub(crate) fn check(&self, waiting: &[HandlerRows], cures: impl Fn(&str, &str) -> Cures) -> Result<(), Error> {
        for (text, recently) in self.texts(waiting, cures) {
            if !recently {
                return Err(Error::Config(text));
            }
            tracing::warn!("{text}");
        }
        Ok(())
    }

    /// Called while the worker runs. Warns of rows that would now prevent its start.
    pub(crate) fn remind(&self, waiting: &[HandlerRows], cures: impl Fn(&str, &str) -> Cures) {
        for (text, _) in self.texts(waiting, cures).filter(|(_, recently)| !recently) {
            tracing::warn!("{text}");
        }
    }

    /// Returns the message for each handler that this worker does not have, and whether the handler was seen recently.
    fn texts(
        &self,
        waiting: &[HandlerRows],
        cures: impl Fn(&str, &str) -> Cures,
    ) -> impl Iterator<Item = (String, bool)> {
        // The empty name stands for no handler, and every worker has it.
        let strange = |row: &&HandlerRows| !row.handler.is_empty() && !self.names.contains(&row.handler.as_str());
        waiting.iter().filter(strange).map(move |row| {
            let new = self.names.first().copied().unwrap_or_default();
            let recently = row.seen <= SEEN_RECENTLY;
            (self.text(row, recently, &cures(&row.handler, new)), recently)
        })
    }

    fn text(&self, row: &HandlerRows, recently: bool, cures: &Cures) -> String {
        let Self { consumer, names } = self;
        let HandlerRows { handler, seen } = row;
        let Cures { rename, part, dead_letter, .. } = cures;
        let seen = if recently {
            format!("and which a worker had {} ago: they wait for that one", ago(*seen))
        } else {
            format!("and which no worker has had for {}: the rows will not run", ago(*seen))
        };
        let others = others(names);
        format!(
            "the inbox has rows of {consumer:?} for the handler {handler:?}, which this worker does not have, {seen}. If a \
             release was rolled back, its next start runs them. If the handler has another name now, let it keep the old \
             one, `#[idempotent(name = {handler:?})]`, or stop the workers of {consumer:?} and rename it{others}: {rename}. \
             If another service or worker has the handler, give each its own consumer name, stop its workers, and \
             move the handler with its claims: {part}. If the rows are not needed, turn the scheduled ones into dead \
             letters: {dead_letter}; then discard them, `Inbox::list` with \
             `Filter::new().handler({handler:?})` and `Inbox::discard`. To leave them where they are, start with \
             `.allow_unregistered_rows()`"
        )
    }
}

/// Returns the names of handlers, those of new ones first: a handler with a history cannot be another one under a new name.
pub(crate) fn new_first<'a>(names: impl IntoIterator<Item = &'a str>, histories: &[History]) -> Vec<&'a str> {
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_by_key(|name| histories.iter().any(|history| history.has_processed && history.handler == *name));
    names
}

/// Returns the same cures, with a rename that works. It fails if the new name has latest versions, so those are moved to the
/// old name first; not those of a handler that has claims, to which no rename is possible.
pub(crate) fn with_versions(
    histories: &[History],
    cures: impl Fn(&str, &str) -> Cures,
) -> impl Fn(&str, &str) -> Cures {
    move |old, new| {
        let found = cures(old, new);
        let is_movable = |history: &History| history.has_versions && !history.has_processed && history.handler == new;
        match histories.iter().any(is_movable) {
            true => Cures { rename: format!("{}; {}", cures(new, old).merge, found.rename), ..found },
            false => found,
        }
    }
}

/// Names the handlers to which one could be renamed instead of the first.
pub(super) fn others(names: &[&str]) -> String {
    match names {
        [] | [_] => String::new(),
        [first, others @ ..] => format!(" (or, in the place of {first:?}, to one of {others:?})"),
    }
}

/// Formats a duration, from two minutes on without its seconds.
pub(super) fn ago(time: Duration) -> String {
    let seconds = time.as_secs();
    crate::age::shown(Duration::from_secs(if seconds < 120 { seconds } else { seconds / 60 * 60 }))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::{Cures, HandlerRows, History, SEEN_RECENTLY, Unregistered, new_first, with_versions};

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(text)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the text logged by `work`.
    fn logged(work: impl FnOnce()) -> String {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        crate::logged::with_subscriber(subscriber, work);
        let text = log.0.lock().unwrap().clone();
        String::from_utf8(text).unwrap()
    }

    fn cures(handler: &str, new: &str) -> Cures {
        let cure = |what| format!("{what} {handler} {new}");
        Cures { rename: cure("RENAME"), part: cure("PART"), dead_letter: cure("BURY"), ..Cures::default() }
    }

    fn waiting(handler: &str, seen: Duration) -> HandlerRows {
        HandlerRows { handler: handler.to_owned(), seen }
    }

    const OURS: Unregistered<'_> = Unregistered { consumer: "billing", names: &["orders", "invoices"] };
    const LATE: Duration = SEEN_RECENTLY.saturating_add(Duration::from_secs(1));

    #[test]
    fn a_handler_seen_within_a_day_is_a_warning_with_each_remedy() {
        let rows = [waiting("refunds", SEEN_RECENTLY), waiting("orders", LATE), waiting("", LATE)];
        let log = logged(|| OURS.check(&rows, cures).unwrap());
        assert_eq!(log.matches("WARN").count(), 1, "{log}");
        for part in [
            "\"billing\"",
            "\"refunds\"",
            "1 day ago",
            "rolled back",
            "RENAME refunds orders",
            "[\"invoices\"]",
            "PART refunds",
            "BURY refunds",
            "allow_unregistered_rows",
        ] {
            assert!(log.contains(part), "{part:?} is not in {log:?}");
        }
    }

    #[test]
    fn a_handler_not_seen_for_a_day_is_refused_with_each_remedy() {
        let rows = [waiting("gone", LATE), waiting("refunds", Duration::ZERO)];
        let refused = OURS.check(&rows, cures).unwrap_err().to_string();
        for part in ["\"gone\"", "no worker has had for 1 day", "RENAME gone orders", "PART gone", "BURY gone"] {
            assert!(refused.contains(part), "{part:?} is not in {refused:?}");
        }
    }

    #[test]
    fn the_rename_to_a_name_that_has_latest_versions_moves_them_first() {
        let history = |name: &str, has_processed, has_versions| History {
            has_processed,
            has_versions,
            ..History::new(name, Duration::ZERO, false)
        };
        let histories = [history("orders", true, true), history("invoices", false, true), history("gone", true, true)];
        let names = new_first(["orders", "invoices", "bills"], &histories);
        assert_eq!(names, ["invoices", "bills", "orders"]);
        let cures = |handler: &str, new: &str| Cures { merge: format!("MERGE {handler} {new}"), ..cures(handler, new) };
        let refused = |names: &[&str]| {
            let ours = Unregistered { consumer: "billing", names };
            let rows = [waiting("gone", LATE)];
            ours.check(&rows, with_versions(&histories, cures)).unwrap_err().to_string()
        };
        let text = refused(&names);
        assert!(text.contains("[\"bills\", \"orders\"]): MERGE invoices gone; RENAME gone invoices."), "{text}");
        for name in ["bills", "orders"] {
            let text = refused(&[name]);
            assert!(text.contains(&format!("rename it: RENAME gone {name}.")), "{text}");
        }
    }

    #[test]
    fn a_worker_that_runs_is_reminded_of_what_would_be_refused_only() {
        let rows = [waiting("gone", LATE), waiting("refunds", Duration::ZERO), waiting("orders", LATE)];
        let log = logged(|| OURS.remind(&rows, cures));
        assert_eq!((log.matches("WARN").count(), log.contains("\"gone\"")), (1, true), "{log}");
    }
}
