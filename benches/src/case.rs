//! A measured case: one side, doing one kind of work, with a given concurrency, on a table of a given size.

use std::fmt;

/// The implementation that does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    /// A: one autocommitted statement for each message, and no dedup.
    Autocommit,
    /// B: the handwritten loop.
    ByHand,
    /// C: idem, one message per transaction.
    Idem,
    /// C with a natural handler, which has no claims.
    Natural,
    /// C with `.inbox()`: each message is stored, acked, and run from its row.
    Inbox,
    /// D: idem in batches of this size, with the handler unchanged.
    Batch(usize),
    /// E: idem in batches of this size, with a batch handler.
    BatchHandler(usize),
    /// Another library.
    Peer,
    /// C on SQLite.
    Sqlite,
    /// B on SQLite.
    SqliteByHand,
    /// C from a real broker, or D if batches are larger than one.
    Broker(Broker, usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Broker {
    #[value(name = "rabbitmq")]
    RabbitMq,
    Nats,
    Kafka,
}

/// The kind of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    /// All messages are new; the handler inserts a row.
    Fresh,
    /// All messages have been processed before.
    Duplicates,
    /// All messages are new; the handler inserts a row, and stages a message for a relay.
    Staged,
}

/// The number of existing claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Size {
    /// None.
    Empty,
    /// The requested number.
    Full,
    /// The requested number, with keys that grow (UUIDv7), as those of the new messages do. The others are random.
    Growing,
}

/// How many messages a worker on a broker processes before it is measured. On Kafka it stores the first 256 messages (the
/// default window) of each of the four partitions and runs them from the inbox, and then runs as many directly.
pub(crate) const WARM_UP: usize = 2_048;

/// How many messages are measured behind the warm-up, at least: ten thousand of each partition. When the clock starts, the
/// client has fetched about a thousand of each (`queued.min.messages`), and a short run would measure its memory.
pub(crate) const FROM_KAFKA: usize = 40_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Case {
    pub(crate) side: Side,
    pub(crate) lanes: usize,
    pub(crate) work: Work,
    pub(crate) size: Size,
}

impl Case {
    /// Creates a case of new messages on an empty table.
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

    /// Returns the broker that it needs.
    pub(crate) fn broker(&self) -> Option<Broker> {
        match self.side {
            Side::Broker(broker, _) => Some(broker),
            _ => None,
        }
    }

    /// Returns the number of messages of the first round; the others process as many as fit into their time.
    pub(crate) fn first(&self) -> usize {
        match self.side {
            Side::BatchHandler(_) => 20_000,
            Side::Batch(_) | Side::Broker(..) => 10_000,
            _ if self.lanes == 1 => 300,
            _ => 2_000,
        }
    }

    /// Returns how many messages a task takes at once, for the size of a round.
    fn together(&self) -> usize {
        match self.side {
            // Two batches per task are enough for a thousand messages.
            Side::Batch(most) | Side::BatchHandler(most) | Side::Broker(_, most) => (most / 20).max(1),
            _ => 1,
        }
    }

    /// Returns the number of messages of a round, near `messages`: enough that each task has its share.
    pub(crate) fn round(&self, messages: f64) -> usize {
        let least = match self.side {
            Side::Broker(Broker::Kafka, _) => FROM_KAFKA,
            _ => 40 * self.lanes * self.together(),
        };
        match self.side {
            // They are published first, which is not measured and takes longer.
            Side::Broker(..) => (messages as usize).clamp(least, 50_000) + WARM_UP,
            _ => (messages as usize).clamp(least, 500_000),
        }
    }

    /// Returns its name in tables and files.
    pub(crate) fn label(&self) -> String {
        let work = match self.work {
            Work::Fresh => "",
            Work::Duplicates => ", duplicates",
            Work::Staged => ", one outgoing",
        };
        let size = match self.size {
            Size::Empty => "",
            Size::Full => ", all claims",
            Size::Growing => ", all claims, growing keys",
        };
        let Self { side, lanes, .. } = self;
        format!("{side}{work}{size}, {lanes} lane{}", if *lanes == 1 { "" } else { "s" })
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Batch(most) => return write!(f, "D idem, batches of {most}"),
            Self::Broker(broker, 1) => return write!(f, "C idem, {broker}"),
            Self::Broker(broker, most) => return write!(f, "D idem, {broker}, batches of {most}"),
            Self::BatchHandler(most) => return write!(f, "E batch handler of {most}"),
            Self::Autocommit => "A no dedup",
            Self::ByHand => "B by hand",
            Self::Idem => "C idem",
            Self::Natural => "C idem, natural",
            Self::Inbox => "C idem, .inbox()",
            Self::Peer => "backbone-outbox",
            Self::Sqlite => "C idem, SQLite",
            Self::SqliteByHand => "B by hand, SQLite",
        })
    }
}

/// Evaluates this with the client of a broker as a type.
macro_rules! on_broker {
    ($broker:expr, $client:ident => $evaluated:expr) => {
        match $broker {
            $crate::case::Broker::RabbitMq => {
                type $client = idem_brokers::RabbitMq;
                $evaluated
            }
            $crate::case::Broker::Nats => {
                type $client = idem_brokers::Nats;
                $evaluated
            }
            $crate::case::Broker::Kafka => {
                type $client = idem_brokers::Kafka;
                $evaluated
            }
        }
    };
}
pub(crate) use on_broker;

impl Broker {
    pub(crate) const ALL: [Self; 3] = [Self::RabbitMq, Self::Nats, Self::Kafka];

    /// Returns the environment variable with its address.
    pub(crate) fn variable(self) -> &'static str {
        on_broker!(self, Client => <Client as idem_brokers::Broker>::VARIABLE)
    }

    /// Starts a private server.
    pub(crate) fn start(self) -> anyhow::Result<idem_services::Instance> {
        on_broker!(self, Client => (<Client as idem_brokers::Broker>::START)())
    }
}

impl fmt::Display for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RabbitMq => "RabbitMQ",
            Self::Nats => "NATS",
            Self::Kafka => "Kafka",
        })
    }
}
