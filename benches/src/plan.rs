//! A measured case: one side, doing one kind of work, with a given concurrency, on a table of a given size; and the cases to
//! measure, in the order of a round: compared cases are adjacent.

use std::fmt;

/// The implementation that does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    /// A: one autocommitted statement for each message, and no dedup.
    Autocommit,
    /// B: the handwritten loop.
    HandWritten,
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
    SqliteHandWritten,
    /// B from SQS, with the SDK of idem's source.
    SqsHandWritten,
    /// C from a real broker, or D if batches are larger than one.
    Broker(Broker, usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Broker {
    #[value(name = "rabbitmq")]
    RabbitMq,
    Nats,
    Kafka,
    Sqs,
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
            Side::SqsHandWritten => Some(Broker::Sqs),
            _ => None,
        }
    }

    /// Returns the number of messages of the first round; the others process as many as fit into their time.
    pub(crate) fn first(&self) -> usize {
        match self.side {
            Side::BatchHandler(_) => 20_000,
            Side::Batch(_) | Side::Broker(..) | Side::SqsHandWritten => 10_000,
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
        match self.broker() {
            // They are published first, which is not measured and takes longer.
            Some(_) => (messages as usize).clamp(least, 50_000) + WARM_UP,
            None => (messages as usize).clamp(least, 500_000),
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
            Self::HandWritten => "B hand-written",
            Self::Idem => "C idem",
            Self::Natural => "C idem, natural",
            Self::Inbox => "C idem, .inbox()",
            Self::Peer => "backbone-outbox",
            Self::Sqlite => "C idem, SQLite",
            Self::SqliteHandWritten => "B hand-written, SQLite",
            Self::SqsHandWritten => "B hand-written, SQS",
        })
    }
}

/// Evaluates this with the client of a broker as a type.
macro_rules! on_broker {
    ($broker:expr, $client:ident => $evaluated:expr) => {
        match $broker {
            $crate::plan::Broker::RabbitMq => {
                type $client = idem_brokers::RabbitMq;
                $evaluated
            }
            $crate::plan::Broker::Nats => {
                type $client = idem_brokers::Nats;
                $evaluated
            }
            $crate::plan::Broker::Kafka => {
                type $client = idem_brokers::Kafka;
                $evaluated
            }
            $crate::plan::Broker::Sqs => {
                type $client = idem_brokers::Sqs;
                $evaluated
            }
        }
    };
}
pub(crate) use on_broker;

impl Broker {
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
            Self::Sqs => "SQS",
        })
    }
}

/// The cases of SQS: the hand-written loop, and idem.
pub(crate) const FROM_SQS: [Case; 2] =
    [Case::new(Side::SqsHandWritten, 16), Case::new(Side::Broker(Broker::Sqs, 1), 16)];

/// Returns all cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for lanes in [1, 16] {
        let sides = [Side::Natural, Side::Autocommit, Side::HandWritten, Side::Idem, Side::Peer];
        cases.extend(sides.map(|side| Case::new(side, lanes)));
    }
    for lanes in [1, 4, 16] {
        cases.extend([Side::Batch(100), Side::BatchHandler(1000)].map(|side| Case::new(side, lanes)));
    }
    cases.push(Case::new(Side::Inbox, 16));
    for side in [Side::HandWritten, Side::Idem] {
        cases.extend([1, 16].map(|lanes| Case::new(side, lanes).work(Work::Duplicates)));
    }
    cases.extend([1, 4].map(|lanes| Case::new(Side::Batch(100), lanes).work(Work::Duplicates)));
    for side in [Side::HandWritten, Side::Idem, Side::Batch(100)] {
        cases.push(Case::new(side, 16).work(Work::Staged));
    }
    cases.extend([Side::HandWritten, Side::Idem].map(|side| Case::new(side, 16).on(Size::Full)));
    let sides = [Side::Batch(100), Side::BatchHandler(1000)];
    cases.extend(sides.map(|side| Case::new(side, 4).on(Size::Full)));
    cases.push(Case::new(Side::Batch(100), 4).on(Size::Growing));
    for side in [Side::SqliteHandWritten, Side::Sqlite] {
        cases.extend([1, 16].map(|lanes| Case::new(side, lanes)));
    }
    for broker in [Broker::RabbitMq, Broker::Nats, Broker::Kafka] {
        cases.extend([(1, 16), (100, 4)].map(|(batch, lanes)| Case::new(Side::Broker(broker, batch), lanes)));
    }
    cases.extend(FROM_SQS);
    cases
}

/// A ratio or rate with its threshold.
pub(crate) struct Line {
    pub(crate) what: String,
    pub(crate) case: Case,
    /// The case to compare with; `None` if the threshold is a rate in messages per second.
    pub(crate) to: Option<Case>,
    pub(crate) least: f64,
}

impl Line {
    fn new(what: &str, case: Case, to: Case, least: f64) -> Self {
        Self { what: what.to_owned(), case, to: Some(to), least }
    }
}

/// Returns the ratios and rates, most with a threshold; `rows` is the number of claims in the large tables.
pub(crate) fn lines(rows: usize) -> Vec<Line> {
    let idem = Case::new(Side::Idem, 16);
    let mut lines = vec![Line::new("single, 16 lanes, guard on / B", idem, Case::new(Side::HandWritten, 16), 1.3)];
    let natural = Case::new(Side::Natural, 16);
    lines.push(Line::new("single natural, 16 lanes / A", natural, Case::new(Side::Autocommit, 16), 0.8));
    let batch = Case::new(Side::Batch(100), 4);
    // The same concurrency on both sides, which is the one at which A performs best.
    let beside = Case::new(Side::Batch(100), 16);
    lines.push(Line::new("batch 100 / B, 16 lanes", beside, Case::new(Side::HandWritten, 16), 5.0));
    lines.push(Line::new("batch 100 / A, 16 lanes", beside, Case::new(Side::Autocommit, 16), 2.5));
    let again = |side| Case::new(side, 16).work(Work::Duplicates);
    lines.push(Line::new("duplicates, 16 lanes / B", again(Side::Idem), again(Side::HandWritten), 1.1));
    let copies = batch.work(Work::Duplicates);
    let a_second = "duplicates a second, batch 100, 4 lanes".to_owned();
    lines.push(Line { what: a_second, case: copies, to: None, least: 100_000.0 });
    let staged = |side| Case::new(side, 16).work(Work::Staged);
    let hand_written = staged(Side::HandWritten);
    lines.push(Line::new("one outgoing, single, 16 lanes / B", staged(Side::Idem), hand_written, 1.3));
    lines.push(Line::new("one outgoing, batch 100, 16 lanes / B", staged(Side::Batch(100)), hand_written, 4.0));
    lines.push(Line::new("one outgoing / none, single, 16 lanes", staged(Side::Idem), idem, 0.85));
    // Random keys change other pages of the index with each claim.
    let random = if rows > TEN_MILLION { 0.7 } else { 0.9 };
    lines.push(Line::new("batch 100, all claims / empty", batch.on(Size::Full), batch, random));
    lines.push(Line::new("batch 100, all claims, growing keys / empty", batch.on(Size::Growing), batch, 0.9));
    let (sqlite, hand_written) = (Case::new(Side::Sqlite, 16), Case::new(Side::SqliteHandWritten, 16));
    lines.push(Line::new("SQLite, 16 lanes / B", sqlite, hand_written, 1.0));
    lines.extend(from_brokers());
    let [hand_written, from_sqs] = FROM_SQS;
    lines.push(Line::new("SQS, single, 16 lanes / B", from_sqs, hand_written, 1.0));
    lines.push(Line::new("single, 16 lanes / backbone-outbox", idem, Case::new(Side::Peer, 16), 1.05));
    // Without a threshold.
    lines.push(Line::new("single, 16 lanes / A", idem, Case::new(Side::Autocommit, 16), 0.0));
    lines.push(Line::new("inbox / single, 16 lanes", Case::new(Side::Inbox, 16), idem, 0.0));
    lines
}

const TEN_MILLION: usize = 10_000_000;

/// Returns the thresholds of each broker: batches compared to single messages, and these compared to those from memory.
fn from_brokers() -> Vec<Line> {
    let brokers = [(Broker::RabbitMq, 6.0, 0.75), (Broker::Nats, 6.0, 0.8), (Broker::Kafka, 5.0, 0.9)];
    let lines = brokers.map(|(broker, together, alone)| {
        let (single, batch) = (Case::new(Side::Broker(broker, 1), 16), Case::new(Side::Broker(broker, 100), 4));
        [
            Line::new(&format!("{broker}, batch 100, 4 lanes / single, 16"), batch, single, together),
            Line::new(&format!("{broker}, single, 16 lanes / memory"), single, Case::new(Side::Idem, 16), alone),
        ]
    });
    lines.into_iter().flatten().collect()
}
