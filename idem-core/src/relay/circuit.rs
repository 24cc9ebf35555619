//! Circuit breakers: destinations that give no answer or back off, a broker that is away, and the slots in which messages are
//! published.
//!
//! The first attempt of a message that gets no answer in time opens the circuit of its destination. From then on one message at a
//! time finds out whether it answers again, after a delay that grows, and its other messages wait. A confirm closes it. Those that
//! get no answer share a quarter of the slots, so that the others stay free: the probes of such destinations, and messages of which
//! an earlier attempt got none, which open nothing, because they may never get one.
//!
//! A failure of the broker while others are confirmed is one of the destination, such as a full queue: it backs off, too, and is
//! no timeout. Without a confirm since, the broker is away, and everything waits.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::runtime::jittered;

/// The delay after the first failure, and the longest one; and the longest one of a message that gets no answer while others of
/// its destination are confirmed.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
const UNANSWERED: Duration = Duration::from_secs(120);

/// A failure so soon behind a confirm of another message is one of its destination, although it began later.
const RECENT: Duration = Duration::from_secs(1);

/// How long the broker may be away before another relay is given the lease, whose connection to it may be sound; longer if a message
/// may wait for its answer for longer.
const AWAY: Duration = Duration::from_secs(30);

/// How many messages are published at once to find out whether the broker answers again.
const PROBES: usize = 16;

/// How many ids are kept of the messages without a key to a destination whose circuit is open.
pub(super) const KEPT: usize = 100;

/// The delay after so many failures in a row.
pub(super) fn wait(failures: u32) -> Duration {
    jittered(SHORTEST.saturating_mul(1 << failures.min(6)).min(LONGEST))
}

/// The delay of a message that got no answer so many times in a row.
pub(super) fn wait_unanswered(tries: u32) -> Duration {
    jittered(SHORTEST.saturating_mul(1 << tries.min(11)).min(UNANSWERED))
}

/// The circuits of all destinations that are not simply closed.
#[derive(Debug, Default)]
pub(super) struct Circuits {
    of: HashMap<String, Circuit>,
    /// The open ones that wait for their turn, by the time of it.
    turns: BTreeSet<(Instant, String)>,
    /// How many probes belong to the quarter of the slots.
    slow_probes: usize,
    /// The destination for which was read last. Another one is next.
    read_last: String,
}

/// The circuit of a destination.
#[derive(Debug, Default)]
struct Circuit {
    /// It is open if this is there.
    open: Option<Open>,
    /// The messages that wait: those that were not tried, and those that got no answer, which go last.
    fresh: VecDeque<i64>,
    tried: VecDeque<i64>,
    /// The message that finds out whether it answers, and whether it belongs to the quarter of the slots.
    probe: Option<(i64, bool)>,
    /// The lowest id of messages without a key that are not kept, if there may be some.
    passed: Option<i64>,
    /// Whether the read that runs asks for these, and whether one has since the last probe.
    asked: bool,
    checked: bool,
}

#[derive(Debug)]
struct Open {
    until: Instant,
    failures: u32,
    /// It got no answer, and its probes belong to the quarter of the slots. Otherwise the destination backs off.
    is_slow: bool,
}

impl Circuits {
    pub(super) fn is_open(&self, to: &str) -> bool {
        self.of.get(to).is_some_and(|of| of.open.is_some())
    }

    /// Returns whether a message may be published although the circuit is open, as its probe.
    pub(super) fn is_probe(&self, to: &str, id: i64) -> bool {
        self.of.get(to).is_some_and(|of| of.probes(id))
    }

    /// Returns whether a message to this destination belongs to the quarter of the slots.
    pub(super) fn is_slow(&self, to: &str) -> bool {
        self.of.get(to).and_then(|of| of.open.as_ref()).is_some_and(|open| open.is_slow)
    }

    /// Opens a circuit, or keeps it open for longer, because a message that was published at `began` got no answer or was not
    /// taken. Returns whether it was closed.
    pub(super) fn fail(&mut self, to: &str, is_slow: bool, (began, now): (Instant, Instant)) -> bool {
        if !self.of.contains_key(to) {
            self.of.insert(to.to_owned(), Circuit::default());
        }
        let Some(of) = self.of.get_mut(to) else { return false };
        match &mut of.open {
            Some(open) => {
                open.is_slow |= is_slow;
                // Of messages that failed together, the first one counts.
                if open.until <= began {
                    open.failures = open.failures.saturating_add(1);
                    self.turns.remove(&(open.until, to.to_owned()));
                    open.until = now + wait(open.failures);
                    self.turns.insert((open.until, to.to_owned()));
                }
                false
            }
            closed => {
                let until = now + wait(0);
                *closed = Some(Open { until, failures: 0, is_slow });
                self.turns.insert((until, to.to_owned()));
                true
            }
        }
    }

    /// Closes the circuit of a destination that has confirmed a message. Returns the messages that wait: those that were not tried,
    /// and those that got no answer.
    pub(super) fn confirm(&mut self, to: &str) -> Option<(VecDeque<i64>, VecDeque<i64>)> {
        let of = self.of.get_mut(to)?;
        let open = of.open.take()?;
        self.turns.remove(&(open.until, to.to_owned()));
        let waiting = (std::mem::take(&mut of.fresh), std::mem::take(&mut of.tried));
        self.slow_probes -= usize::from(of.probe.take().is_some_and(|(_, is_slow)| is_slow));
        if of.passed.is_none() {
            self.of.remove(to);
        }
        Some(waiting)
    }

    /// Records that a message is not published any more, whatever its answer was.
    pub(super) fn ended(&mut self, to: &str, id: i64) {
        if let Some(of) = self.of.get_mut(to).filter(|of| of.probes(id)) {
            self.slow_probes -= of.end_probe();
        }
    }

    /// Records that a message is not there any more.
    pub(super) fn gone(&mut self, id: i64) {
        if let Some(of) = self.of.values_mut().find(|of| of.probes(id)) {
            self.slow_probes -= of.end_probe();
        }
    }

    /// Lets a message wait, because the circuit is open. Returns whether its id is kept; otherwise it is read again later.
    pub(super) fn park(&mut self, to: &str, id: i64, (is_keyed, tries): (bool, u32)) -> bool {
        let Some(of) = self.of.get_mut(to) else { return false };
        if !is_keyed && tries == 0 && of.fresh.len() >= KEPT {
            of.pass(id);
            return false;
        }
        if tries > 0 {
            of.tried.push_back(id)
        } else {
            of.fresh.push_back(id)
        }
        true
    }

    /// Takes the probe of the destination whose turn has come first, if there is one. A quarter of the slots is `quarter`.
    pub(super) fn next_probe(&mut self, now: Instant, quarter: usize) -> Option<i64> {
        if self.turns.is_empty() {
            return None;
        }
        let (mut probe, mut idle) = (None, Vec::new());
        for (until, to) in self.turns.range(..=end_of(now)) {
            let Some(of) = self.of.get_mut(to) else { continue };
            let is_slow = of.open.as_ref().is_some_and(|open| open.is_slow);
            if of.probe.is_some() || of.asked || of.wants_read() || is_slow && self.slow_probes >= quarter {
                continue;
            }
            probe = of.fresh.pop_front().or_else(|| of.tried.pop_front());
            of.probe = probe.map(|id| (id, is_slow));
            if probe.is_some() {
                self.slow_probes += usize::from(is_slow);
                break;
            }
            idle.push((*until, to.clone()));
        }
        // No message waits for these, so their circuits are closed.
        for turn in idle {
            self.turns.remove(&turn);
            let of = self.of.get_mut(&turn.1);
            if of.is_some_and(|of| of.open.take().is_some() && of.passed.is_none()) {
                self.of.remove(&turn.1);
            }
        }
        probe
    }

    /// The destinations whose messages without a key reads leave out.
    pub(super) fn left_out(&self) -> Vec<String> {
        self.of.keys().cloned().collect()
    }

    /// Records that a read from this id on has left out all these destinations; also one whose circuit was closed meanwhile.
    pub(super) fn left_out_from(&mut self, destinations: &[String], from: i64) {
        for to in destinations {
            self.of.entry(to.clone()).or_default().pass(from);
        }
    }

    /// A destination of which messages were left out that can be read: it answers, or its probe has to be one of them.
    pub(super) fn to_read(&self, now: Instant) -> Option<String> {
        let is_due = |of: &Circuit| match &of.open {
            Some(open) => open.until <= now && of.wants_read(),
            None => of.passed.is_some(),
        };
        let mut due = self.of.iter().filter(|(_, of)| is_due(of)).map(|(to, _)| to);
        let first = due.next()?;
        Some(if *first == self.read_last { due.next().unwrap_or(first) } else { first }.clone())
    }

    /// Begins to read what was left out of a destination. Returns from where on.
    pub(super) fn begin_read(&mut self, to: &str) -> Option<i64> {
        to.clone_into(&mut self.read_last);
        let of = self.of.get_mut(to)?;
        (of.asked, of.checked) = (true, true);
        of.passed
    }

    /// Records that such a read has ended. `end`: the last id that it has brought, if there may be more; `None`: it has failed.
    pub(super) fn end_read(&mut self, to: &str, end: Option<Option<i64>>) {
        let Some(of) = self.of.get_mut(to) else { return };
        let is_valid = std::mem::take(&mut of.asked);
        match end {
            Some(end) if is_valid => of.passed = end.map(|end| end + 1),
            _ => of.checked = false,
        }
        if of.passed.is_none() && of.open.is_none() {
            self.of.remove(to);
        }
    }
}

/// Behind all turns of this time.
fn end_of(now: Instant) -> (Instant, String) {
    (now, String::from(char::MAX))
}

impl Circuit {
    fn probes(&self, id: i64) -> bool {
        self.probe.is_some_and(|(probe, _)| probe == id)
    }

    /// Ends its probe. Returns how many slow ones this was.
    fn end_probe(&mut self) -> usize {
        self.checked = false;
        usize::from(self.probe.take().is_some_and(|(_, is_slow)| is_slow))
    }

    /// Returns whether its next probe has to be read first.
    fn wants_read(&self) -> bool {
        self.fresh.is_empty() && self.probe.is_none() && self.passed.is_some() && !self.checked
    }

    /// Records that messages from this id on are not kept.
    fn pass(&mut self, id: i64) {
        self.passed = Some(self.passed.map_or(id, |passed| passed.min(id)));
        self.asked = false;
    }
}

/// Whether the broker answers. A failure counts only if no message has been confirmed since the failed one was published, or just
/// before: otherwise it is one of its destination.
#[derive(Debug, Default)]
pub(super) struct Broker {
    confirmed: Option<Instant>,
    away: Option<Away>,
}

#[derive(Debug)]
struct Away {
    since: Instant,
    until: Instant,
    failures: u32,
}

impl Broker {
    /// Records a confirm. Returns whether the broker had been away.
    pub(super) fn confirm(&mut self, now: Instant) -> bool {
        self.confirmed = Some(now);
        self.away.take().is_some()
    }

    /// Records a failure of a message that was published at `began`. If it got no answer (`is_late`), nothing waits further:
    /// the timeout was long enough. Returns whether the broker is away, and whether it was not before.
    pub(super) fn fail(&mut self, is_late: bool, (began, now): (Instant, Instant)) -> (bool, bool) {
        let is_recent = |confirmed: Instant| confirmed > began || !is_late && confirmed + RECENT > now;
        if self.confirmed.is_some_and(is_recent) {
            return (self.away.is_some(), false);
        }
        match &mut self.away {
            // Of messages that failed together, the first one counts.
            Some(away) if began < away.until || is_late => (true, false),
            Some(away) => {
                away.failures = away.failures.saturating_add(1);
                away.until = now + wait(away.failures);
                (true, false)
            }
            None => {
                let until = if is_late { now } else { now + wait(0) };
                self.away = Some(Away { since: now, until, failures: 0 });
                (true, true)
            }
        }
    }

    /// Returns whether it has been away for so long that another relay should try. A message may wait for its answer for `timeout`.
    pub(super) fn is_lost(&self, now: Instant, timeout: Duration) -> bool {
        self.away.as_ref().is_some_and(|away| now.duration_since(away.since) > AWAY.max(timeout.saturating_mul(2)))
    }

    /// How many messages may be published at a time, of at most `most`.
    pub(super) fn slots(&self, most: usize, now: Instant) -> usize {
        match &self.away {
            Some(away) if now < away.until => 0,
            Some(_) => PROBES.min(most),
            None => most,
        }
    }
}

#[cfg(test)]
mod tests;
