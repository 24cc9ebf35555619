//! What is measured: one side, doing one kind of work, with so many lanes, on a table of one size.

use std::fmt;

/// Who does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    /// A: one statement for each message, committed by itself, and no dedup.
    Autocommit,
    /// B: the loop written by hand.
    ByHand,
    /// C: idem, one message per transaction.
    Idem,
    /// D: idem in batches of so many, the handler unchanged.
    Batch(usize),
    /// E: idem in batches of so many, the handler taking them all at once.
    Set(usize),
    /// F: what the database can do at best: a thousand messages by two statements.
    Raw,
    /// pgbench with B's statements.
    Pgbench,
    /// Another library, by its place among the options.
    Peer(usize),
    /// C on SQLite.
    Sqlite,
    /// B on SQLite.
    SqliteByHand,
    /// C from a real broker.
    Broker(Broker),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Broker {
    RabbitMq,
    Nats,
    Kafka,
}

/// What the messages are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    /// All of them new; the handler inserts a row.
    Fresh,
    /// All of them processed before.
    Duplicates,
    /// All of them new; the handler updates one of 200 rows.
    Hot,
}

/// How many claims are there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Size {
    /// None.
    Empty,
    /// A tenth of what was asked for.
    Tenth,
    /// As many as were asked for.
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Case {
    pub(crate) side: Side,
    pub(crate) lanes: usize,
    pub(crate) work: Work,
    pub(crate) size: Size,
}

impl Case {
    /// New messages on an empty table.
    pub(crate) const fn new(side: Side, lanes: usize) -> Self {
        Self { side, lanes, work: Work::Fresh, size: Size::Empty }
    }

    pub(crate) const fn work(mut self, work: Work) -> Self {
        self.work = work;
        self
    }

    pub(crate) const fn on(mut self, size: Size) -> Self {
        self.size = size;
        self
    }

    /// How many messages the first round takes; the others take as many as fit into their time.
    pub(crate) fn first(&self) -> usize {
        match self.side {
            Side::Raw | Side::Set(_) => 20_000,
            Side::Batch(_) => 10_000,
            _ if self.lanes == 1 => 300,
            _ => 2_000,
        }
    }

    /// How many messages a lane takes at once.
    fn together(&self) -> usize {
        match self.side {
            // Two rounds of each lane are enough for a thousand.
            Side::Batch(most) | Side::Set(most) => most / 20,
            Side::Raw => crate::raw::BATCH / 20,
            _ => 1,
        }
    }

    /// How many messages about so many are: enough that each lane has its share.
    pub(crate) fn round(&self, messages: f64) -> usize {
        (messages as usize).clamp(40 * self.lanes * self.together(), 500_000)
    }

    /// Its name in tables and files.
    pub(crate) fn label(&self, peers: &[String]) -> String {
        let side = match self.side {
            Side::Peer(at) => peers.get(at).cloned().unwrap_or_default(),
            side => side.to_string(),
        };
        let work = match self.work {
            Work::Fresh => "",
            Work::Duplicates => ", duplicates",
            Work::Hot => ", hot rows",
        };
        let size = match self.size {
            Size::Empty => "",
            Size::Tenth => ", a tenth of the claims",
            Size::Full => ", all claims",
        };
        let lanes = self.lanes;
        format!("{side}{work}{size}, {lanes} lane{}", if lanes == 1 { "" } else { "s" })
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Batch(most) => return write!(f, "D idem, batches of {most}"),
            Self::Set(most) => return write!(f, "E idem, sets of {most}"),
            Self::Autocommit => "A no dedup",
            Self::ByHand => "B by hand",
            Self::Idem => "C idem",
            Self::Raw => "F raw SQL, 1000 at once",
            Self::Pgbench => "pgbench",
            Self::Peer(_) => "peer",
            Self::Sqlite => "C idem, SQLite",
            Self::SqliteByHand => "B by hand, SQLite",
            Self::Broker(Broker::RabbitMq) => "C idem, RabbitMQ",
            Self::Broker(Broker::Nats) => "C idem, NATS",
            Self::Broker(Broker::Kafka) => "C idem, Kafka",
        })
    }
}
