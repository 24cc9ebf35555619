//! What a process writes about itself. A kill does not take it away: what was written is with the kernel.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};

/// What happened to the delivery of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// It came for the first time, as far as the broker knows.
    Delivered,
    /// It came again.
    Redelivered,
    /// It was acked, given back, or dropped.
    Settled,
    /// Its handler has begun, be it from the broker or from the inbox.
    Begun,
    /// Its handler has returned, or was dropped.
    Ended,
    /// It was answered as a duplicate.
    Duplicate,
    /// It has another outcome, which the database has written down.
    Written,
    /// The process is about to end between its commit and its ack.
    Ending,
    /// Its handler is about to end the process.
    Killing,
}

impl Event {
    const ALL: [(Self, char); 9] = [
        (Self::Delivered, 'd'),
        (Self::Redelivered, 'r'),
        (Self::Settled, 's'),
        (Self::Begun, 'b'),
        (Self::Ended, 'n'),
        (Self::Duplicate, 'x'),
        (Self::Written, 'w'),
        (Self::Ending, 'e'),
        (Self::Killing, 'k'),
    ];

    fn letter(self) -> char {
        Self::ALL.iter().find(|(event, _)| *event == self).map_or('?', |(_, letter)| *letter)
    }

    fn parse(letter: char) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == letter).map(|(event, _)| *event)
    }
}

/// Written by a worker, one line for each event.
#[derive(Debug, Clone)]
pub(crate) struct Journal(Arc<Mutex<File>>);

impl Journal {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Self(Arc::new(Mutex::new(file.with_context(|| format!("cannot open {}", path.display()))?))))
    }

    /// One write for each event, without a buffer that a kill could take away.
    pub(crate) fn note(&self, event: Event, id: u64) {
        let line = format!("{} {id}\n", event.letter());
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(line.as_bytes()) {
            // Without its journal a worker proves nothing.
            eprintln!("cannot write the journal: {error}");
            std::process::exit(3);
        }
    }
}

/// Read by the demo, while it grows.
#[derive(Debug)]
pub(crate) struct Reader {
    file: File,
    rest: String,
    /// The sum of what was read.
    pub(crate) sum: Sum,
}

/// What a journal comes to.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    pub(crate) delivered: u64,
    pub(crate) redelivered: u64,
    pub(crate) duplicates: u64,
    /// Came, and is neither acked nor given back.
    pub(crate) in_flight: u64,
    /// The messages whose handlers run, and how many of each do.
    running: HashMap<u64, u64>,
    /// The messages whose handlers began, and whose outcome is not written.
    unwritten: HashSet<u64>,
    /// Came again.
    pub(crate) again: HashSet<u64>,
    /// The message at which the process ended itself between commit and ack.
    pub(crate) ended_at: Option<u64>,
    /// The message whose handler has ended the process.
    pub(crate) killed_by: Option<u64>,
}

impl Reader {
    /// Reads a journal that a worker may not have begun yet.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let _ = Journal::open(path)?;
        Ok(Self { file: File::open(path)?, rest: String::new(), sum: Sum::default() })
    }

    /// Reads what has come since.
    pub(crate) fn read(&mut self) -> Result<()> {
        self.file.read_to_string(&mut self.rest)?;
        let end = self.rest.rfind('\n').map_or(0, |end| end + 1);
        let lines: String = self.rest.drain(..end).collect();
        for line in lines.lines() {
            let (letter, id) = line.split_once(' ').context("a damaged journal")?;
            let event = letter.chars().next().and_then(Event::parse).context("a damaged journal")?;
            self.sum.add(event, id.parse().context("a damaged journal")?);
        }
        Ok(())
    }
}

impl Sum {
    /// How much it has in hand: deliveries, or where there are none, runs from the inbox.
    pub(crate) fn in_hand(&self) -> u64 {
        self.in_flight.max(self.running.values().sum())
    }

    /// Whether it wrote that it is about to end.
    pub(crate) fn ends_itself(&self) -> bool {
        self.killed_by.is_some() || self.ended_at.is_some()
    }

    /// Whether the handler of this message has begun, and its outcome is not written, or was not when the process ended.
    pub(crate) fn is_unwritten(&self, id: u64) -> bool {
        self.unwritten.contains(&id)
    }

    fn add(&mut self, event: Event, id: u64) {
        match event {
            Event::Delivered => {
                self.delivered += 1;
                self.in_flight += 1;
            }
            Event::Redelivered => {
                self.delivered += 1;
                self.redelivered += 1;
                self.in_flight += 1;
                self.again.insert(id);
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
