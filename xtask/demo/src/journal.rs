//! The journal of a process. It survives a kill: written data is in the kernel.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// An event of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Event {
    /// The message was delivered.
    Delivered,
    /// The delivery was acked, returned to the broker, or dropped.
    Settled,
    /// The handler has begun, for a delivery or from the inbox.
    Begun,
    /// The handler has returned, or was dropped.
    Ended,
    /// The delivery was a duplicate.
    Duplicate,
    /// The message has another outcome, which the database has recorded.
    Written,
    /// The process is about to kill itself between commit and ack.
    Ending,
    /// The handler is about to end the process.
    Killing,
}

/// The journal as written by a worker, one line for each event.
#[derive(Debug, Clone)]
pub(crate) struct Journal(Arc<Mutex<File>>);

impl Journal {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Self(Arc::new(Mutex::new(file.with_context(|| format!("cannot open {}", path.display()))?))))
    }

    /// Writes each event immediately, without a buffer that a kill would discard.
    pub(crate) fn note(&self, event: Event, id: u64) {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let written = serde_json::to_string(&(event, id)).map_err(Into::into);
        // At once, so that a process that is killed meanwhile leaves no half of a line in front of the next.
        if let Err(error) = written.and_then(|line| file.write_all(format!("{line}\n").as_bytes())) {
            // Without its journal, a worker proves nothing.
            eprintln!("cannot write the journal: {error}");
            std::process::exit(3);
        }
    }
}

/// The journal as read by the demo, while it grows.
#[derive(Debug)]
pub(crate) struct Reader {
    file: File,
    rest: String,
    /// The totals of the events read so far.
    pub(crate) sum: Sum,
}

/// The totals of a journal.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    pub(crate) delivered: u64,
    pub(crate) duplicates: u64,
    /// Deliveries that are neither acked nor returned to the broker.
    pub(crate) in_flight: u64,
    /// The messages whose handlers run, and the number of runs of each.
    running: HashMap<u64, u64>,
    /// The messages whose handlers began and whose outcome is not recorded.
    unwritten: HashSet<u64>,
    /// How often each message was delivered.
    each: HashMap<u64, u64>,
    /// The message at which the process killed itself between commit and ack.
    pub(crate) ended_at: Option<u64>,
    /// The message whose handler has ended the process.
    pub(crate) killed_by: Option<u64>,
}

impl Reader {
    /// Opens a journal that the worker may not have created yet.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let _ = Journal::open(path)?;
        Ok(Self { file: File::open(path)?, rest: String::new(), sum: Sum::default() })
    }

    /// Reads the events written since the last call.
    pub(crate) fn read(&mut self) -> Result<()> {
        self.file.read_to_string(&mut self.rest)?;
        let end = self.rest.rfind('\n').map_or(0, |end| end + 1);
        let lines: String = self.rest.drain(..end).collect();
        for line in lines.lines() {
            let (event, id) = serde_json::from_str(line).context("a damaged journal")?;
            self.sum.add(event, id);
        }
        Ok(())
    }
}

impl Sum {
    /// Returns the amount of work in hand: deliveries or, if there are none, runs from the inbox.
    pub(crate) fn in_hand(&self) -> u64 {
        self.in_flight.max(self.running.values().sum())
    }

    /// Returns whether the process recorded that it is about to end.
    pub(crate) fn ends_itself(&self) -> bool {
        self.killed_by.is_some() || self.ended_at.is_some()
    }

    /// Returns whether the handler of this message has begun and its outcome is not recorded.
    pub(crate) fn is_unwritten(&self, id: u64) -> bool {
        self.unwritten.contains(&id)
    }

    /// Returns how often this message was delivered, copies included.
    pub(crate) fn deliveries(&self, id: u64) -> u64 {
        self.each.get(&id).copied().unwrap_or(0)
    }

    fn add(&mut self, event: Event, id: u64) {
        match event {
            Event::Delivered => {
                self.delivered += 1;
                self.in_flight += 1;
                *self.each.entry(id).or_default() += 1;
            }
            Event::Settled => self.in_flight = self.in_flight.saturating_sub(1),
            Event::Begun => {
                *self.running.entry(id).or_default() += 1;
                self.unwritten.insert(id);
            }
            Event::Ended => {
                self.running.entry(id).and_modify(|times| *times -= 1);
                self.running.retain(|_, times| *times > 0);
            }
            Event::Duplicate => self.duplicates += 1,
            Event::Written => _ = self.unwritten.remove(&id),
            Event::Ending => self.ended_at = Some(id),
            Event::Killing => self.killed_by = Some(id),
        }
    }
}
