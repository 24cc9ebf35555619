//! All that is done to processes and servers during a run, and when.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fastrand::Rng;
use sqlx::{Connection, PgConnection};

use crate::journal::Sum;
use crate::processes::{Processes, Servers};

/// Longer than a process needs to end itself once it has taken the signal.
const TAKEN: Duration = Duration::from_secs(10);

/// How long the database is frozen: longer than the handler timeout and than a lease.
const FROZEN: Duration = Duration::from_secs(4);

/// Something other than a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A process joins. On Kafka, partitions move.
    Join,
    /// A process leaves gracefully.
    Leave,
    /// The database does not respond for a while, and its connections stay open.
    Freeze,
    /// A process of the database is killed; the database then ends all others and recovers.
    Crash,
    /// The broker is shut down cleanly and restarted.
    Restart,
}

/// A completed kill.
#[derive(Debug)]
pub(crate) struct Kill {
    /// The amount of work that the process had in hand.
    pub(crate) in_hand: u64,
    /// The message that was committed and not acked, if the kill was between the two, and whether the database had its claim
    /// just after the kill. If not, the kill was not after the commit. For a relay it is a message that was confirmed and not
    /// deleted.
    pub(crate) before_ack: Option<(u64, bool)>,
}

/// What is planned and done. Each moment is a number of processed messages.
#[derive(Debug)]
pub(crate) struct Disruptions {
    /// When a process is killed, whatever it has in hand.
    planned: Vec<u64>,
    /// When a process kills itself between a commit and its ack.
    before_ack: Vec<u64>,
    /// When the processes were last told so, if none of them has done it since.
    told: Option<Instant>,
    /// The last one first.
    events: Vec<(u64, Event)>,
    pub(crate) kills: Vec<Kill>,
    /// How many faults of servers have occurred.
    pub(crate) faults: u64,
}

impl Disruptions {
    /// Plans kills at random moments while there is work, two of five, and at least one, between commit and ack; these faults
    /// in turn; and one process that joins, and later one that leaves.
    pub(crate) fn new(kills: usize, faults: &[Event], messages: u64, rng: &mut Rng) -> Self {
        let before_ack = (kills * 2 / 5).max(1).min(kills);
        let mut moments = |count: usize, first: u64| (0..count).map(|_| rng.u64(first..=messages / 2)).collect();
        let (before_ack, planned) = (moments(before_ack, 0), moments(kills - before_ack, messages / 20));
        let fault = |turn: u64| messages * (turn + 1) * 3 / (4 * (faults.len() as u64 + 1));
        let mut events: Vec<_> = (0..).map(fault).zip(faults.iter().copied()).collect();
        events.push((rng.u64(messages / 10..=messages * 3 / 10), Event::Join));
        events.push((rng.u64(messages * 4 / 10..=messages * 6 / 10), Event::Leave));
        events.sort_by_key(|(moment, _)| std::cmp::Reverse(*moment));
        Self { planned, before_ack, told: None, events, kills: Vec::new(), faults: 0 }
    }

    /// Returns how many kills are still to come.
    pub(crate) fn kills_left(&self) -> usize {
        self.planned.len() + self.before_ack.len()
    }

    /// Returns how many events are still to come.
    pub(crate) fn events_left(&self) -> usize {
        self.events.len()
    }

    /// Returns how much is still to come.
    pub(crate) fn left(&self) -> usize {
        self.kills_left() + self.events_left()
    }

    /// Returns the messages that were committed and not acked when their processes were killed.
    pub(crate) fn before_ack(&self) -> impl Iterator<Item = (u64, bool)> {
        self.kills.iter().filter_map(|kill| kill.before_ack)
    }

    /// Does what is due after this many messages, and returns the event. Everything is due if `all` is given: the processes
    /// have run out of work and hold what they get. `committed` says whether the message at whose ack a process killed itself
    /// was committed.
    pub(crate) async fn strike(
        &mut self,
        processes: &mut Processes,
        servers: &mut Servers,
        committed: impl AsyncFnMut(u64) -> Result<bool>,
        (done, all): (u64, bool),
        rng: &mut Rng,
    ) -> Result<Option<Event>> {
        let is_due = |moment: &u64| all || done >= *moment;
        self.end_one(processes, is_due)?;
        self.note_ended(processes, committed).await?;
        self.kill(processes, is_due, rng).await?;
        let Some(&(_, event)) = self.events.last().filter(|(moment, _)| is_due(moment)) else { return Ok(None) };
        match event {
            Event::Join => processes.start()?,
            Event::Leave => {
                let Some(place) = rng.choice(processes.busy()) else { return Ok(None) };
                if !processes.let_go(place).await? {
                    processes.start()?;
                    return Ok(None);
                }
            }
            Event::Freeze => servers.freeze(FROZEN).await?,
            Event::Crash => crash(servers.database()).await?,
            Event::Restart => servers.restart_broker()?,
        }
        self.events.pop();
        self.faults += u64::from(!matches!(event, Event::Join | Event::Leave));
        Ok(Some(event))
    }

    /// Tells the processes to end one of them between commit and ack, if that is due.
    fn end_one(&mut self, processes: &Processes, is_due: impl Fn(&u64) -> bool) -> Result<()> {
        // A process that took the signal may be killed by something else before it could record that.
        let is_lost = |told: Instant| told.elapsed() > TAKEN && !processes.signals.is_end_pending();
        if self.told.is_none_or(is_lost) && self.before_ack.last().is_some_and(is_due) {
            processes.signals.end_one()?;
            self.told = Some(Instant::now());
        }
        Ok(())
    }

    /// Records the processes that killed themselves.
    async fn note_ended(
        &mut self,
        processes: &mut Processes,
        mut committed: impl AsyncFnMut(u64) -> Result<bool>,
    ) -> Result<()> {
        for (in_hand, id) in std::mem::take(&mut processes.ended) {
            let before_ack = Some((id, committed(id).await?));
            self.kills.push(Kill { in_hand, before_ack });
            self.told = None;
            self.before_ack.pop();
        }
        Ok(())
    }

    /// Kills a process if that is due, and starts another one in its place.
    async fn kill(&mut self, processes: &mut Processes, is_due: impl Fn(&u64) -> bool, rng: &mut Rng) -> Result<()> {
        let Some(due) = self.planned.iter().position(is_due) else { return Ok(()) };
        let Some(victim) = rng.choice(processes.busy()) else { return Ok(()) };
        tokio::time::sleep(Duration::from_micros(rng.u64(..20_000))).await;
        let Some(in_hand) = processes.kill(victim).await?.map(Sum::in_hand) else { return Ok(()) };
        self.planned.remove(due);
        self.kills.push(Kill { in_hand, before_ack: None });
        processes.start()
    }
}

/// Kills the server process of a new connection, as the kernel's out-of-memory killer does. The server starts the program
/// as a child of that process (PostgreSQL manual, COPY).
async fn crash(database: &str) -> Result<()> {
    let mut connection = PgConnection::connect(database).await?;
    let killed = sqlx::raw_sql("COPY (SELECT 1) TO PROGRAM 'kill -9 $PPID'").execute(&mut connection).await;
    ensure!(killed.is_err(), "a process of the database was to be killed, and answers");
    Ok(())
}
