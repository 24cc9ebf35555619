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

use std::collections::{HashMap, VecDeque};
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
}

/// The circuit of a destination.
#[derive(Debug, Default)]
struct Circuit {
    /// It is open if this is there.
    open: Option<Open>,
    /// The messages that wait: those that were not tried, and those that got no answer, which go last.
    fresh: VecDeque<i64>,
    tried: VecDeque<i64>,
    /// The message that finds out whether it answers.
    probe: Option<i64>,
    /// The lowest id of messages without a key that are not kept, if there may be some, beside those of the read that runs.
    passed: Option<i64>,
    /// Whether the read that runs is for these, and whether one has ended since the last probe.
    is_read: bool,
    checked: bool,
    /// When the last one began.
    read_at: Option<Instant>,
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
        self.of.get(to).is_some_and(|of| of.probe == Some(id))
    }

    /// Returns whether a message to this destination belongs to the quarter of the slots.
    pub(super) fn is_slow(&self, to: &str) -> bool {
        self.of.get(to).is_some_and(Circuit::is_slow)
    }

    /// Opens a circuit, or keeps it open for longer, because a message that was published at `began` got no answer or was not
    /// taken. Returns whether it was closed.
    pub(super) fn fail(&mut self, to: &str, is_slow: bool, (began, now): (Instant, Instant)) -> bool {
        match &mut self.of.entry(to.to_owned()).or_default().open {
            Some(open) => {
                open.is_slow |= is_slow;
                // Of messages that failed together, the first one counts.
                if open.until <= began {
                    open.failures = open.failures.saturating_add(1);
                    open.until = now + wait(open.failures);
                }
                false
            }
            closed => {
                *closed = Some(Open { until: now + wait(0), failures: 0, is_slow });
                true
            }
        }
    }

    /// Closes the circuit of a destination that has confirmed a message. Returns the messages that wait: those that were not tried,
    /// and those that got no answer.
    pub(super) fn confirm(&mut self, to: &str) -> Option<(VecDeque<i64>, VecDeque<i64>)> {
        let of = self.of.get_mut(to)?;
        of.open.take()?;
        of.probe = None;
        Some((std::mem::take(&mut of.fresh), std::mem::take(&mut of.tried)))
    }

    /// Records that a message is not published any more, whatever its answer was.
    pub(super) fn ended(&mut self, to: &str, id: i64) {
        self.of.get_mut(to).into_iter().for_each(|of| of.ended(id));
    }

    /// Records that a message is not there any more.
    pub(super) fn gone(&mut self, id: i64) {
        self.of.values_mut().for_each(|of| of.ended(id));
    }

    /// Lets a message wait, because the circuit is open. Returns whether its id is kept; otherwise it is read again later.
    pub(super) fn park(&mut self, to: &str, id: i64, (is_keyed, tries): (bool, u32)) -> bool {
        let Some(of) = self.of.get_mut(to) else { return false };
        if !is_keyed && tries == 0 && of.fresh.len() >= KEPT {
            of.pass(id);
            return false;
        }
        let waiting = if tries > 0 { &mut of.tried } else { &mut of.fresh };
        waiting.push_back(id);
        true
    }

    /// Takes the probes of the destinations whose turn has come, that of the one which has waited for the longest time first. A
    /// quarter of the slots is `quarter`.
    pub(super) fn probes(&mut self, now: Instant, quarter: usize) -> Vec<i64> {
        let slow = self.of.values().filter(|of| of.probe.is_some() && of.is_slow()).count();
        let mut free = quarter.saturating_sub(slow);
        let is_due = |of: &&mut Circuit| {
            let can_begin = of.probe.is_none() && !of.is_read && !of.wants_read() && (free > 0 || !of.is_slow());
            can_begin && of.open.as_ref().is_some_and(|open| open.until <= now)
        };
        let mut due: Vec<&mut Circuit> = self.of.values_mut().filter(is_due).collect();
        due.sort_by_key(|of| of.open.as_ref().map(|open| open.until));
        let mut probes = Vec::new();
        for of in due {
            let is_slow = of.is_slow();
            if is_slow && free == 0 {
                continue;
            }
            of.probe = of.fresh.pop_front().or_else(|| of.tried.pop_front());
            match of.probe {
                Some(id) => {
                    free -= usize::from(is_slow);
                    probes.push(id);
                }
                // No message waits for it.
                None => of.open = None,
            }
        }
        self.of.retain(|_, of| of.is_left_out() || of.is_read);
        probes
    }

    /// The destinations whose messages without a key reads leave out.
    pub(super) fn left_out(&self) -> Vec<String> {
        self.of.iter().filter(|(_, of)| of.is_left_out()).map(|(to, _)| to.clone()).collect()
    }

    /// Records that a read from this id on has left out all these destinations; also one whose circuit was closed meanwhile.
    pub(super) fn left_out_from(&mut self, destinations: &[String], from: i64) {
        for to in destinations {
            self.of.entry(to.clone()).or_default().pass(from);
        }
    }

    /// Begins to read what was left out of a destination: one that answers, unless the relay is full, or one whose probe has to be
    /// read; that which was not read for for the longest time, so that none waits for the backlog of another one. Returns it, and
    /// from where on.
    pub(super) fn begin_read(&mut self, now: Instant, is_full: bool) -> Option<(String, i64)> {
        let is_due = |of: &Circuit| match &of.open {
            Some(open) => open.until <= now && of.wants_read(),
            None => !is_full && of.passed.is_some(),
        };
        let due = self.of.iter_mut().filter(|(_, of)| is_due(of));
        let (to, of) = due.min_by_key(|(_, of)| (of.read_at, of.passed))?;
        (of.is_read, of.read_at) = (true, Some(now));
        Some((to.clone(), of.passed.take()?))
    }

    /// Records that such a read has ended. `checked`: it has brought what it covers. `rest`: from where on there may be more.
    pub(super) fn end_read(&mut self, to: &str, checked: bool, rest: Option<i64>) {
        let of = self.of.entry(to.to_owned()).or_default();
        (of.is_read, of.checked) = (false, checked && of.passed.is_none());
        rest.into_iter().for_each(|rest| of.pass(rest));
    }
}

impl Circuit {
    fn is_slow(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.is_slow)
    }

    fn is_left_out(&self) -> bool {
        self.open.is_some() || self.passed.is_some()
    }

    /// Ends its probe, if it is this message.
    fn ended(&mut self, id: i64) {
        if self.probe.take_if(|probe| *probe == id).is_some() {
            self.checked = false;
        }
    }

    /// Returns whether its next probe has to be read first.
    fn wants_read(&self) -> bool {
        self.fresh.is_empty() && self.probe.is_none() && self.passed.is_some() && !self.checked
    }

    /// Records that messages from this id on are not kept.
    fn pass(&mut self, id: i64) {
        self.passed = Some(self.passed.map_or(id, |passed| passed.min(id)));
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
