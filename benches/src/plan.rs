//! The cases to measure, in the order of a round: compared cases are adjacent.

use crate::case::{Broker, Case, Side, Size, Work};

/// Returns all cases.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for lanes in [1, 16] {
        let sides = [Side::Natural, Side::Autocommit, Side::ByHand, Side::Idem, Side::Peer];
        cases.extend(sides.map(|side| Case::new(side, lanes)));
    }
    for lanes in [1, 4, 16] {
        cases.extend([Side::Batch(100), Side::BatchHandler(1000)].map(|side| Case::new(side, lanes)));
    }
    cases.push(Case::new(Side::Inbox, 16));
    for side in [Side::ByHand, Side::Idem] {
        cases.extend([1, 16].map(|lanes| Case::new(side, lanes).work(Work::Duplicates)));
    }
    cases.extend([1, 4].map(|lanes| Case::new(Side::Batch(100), lanes).work(Work::Duplicates)));
    for side in [Side::ByHand, Side::Idem, Side::Batch(100)] {
        cases.push(Case::new(side, 16).work(Work::Staged));
    }
    cases.extend([Side::ByHand, Side::Idem].map(|side| Case::new(side, 16).on(Size::Full)));
    let sides = [Side::Batch(100), Side::BatchHandler(1000)];
    cases.extend(sides.map(|side| Case::new(side, 4).on(Size::Full)));
    cases.push(Case::new(Side::Batch(100), 4).on(Size::Growing));
    for side in [Side::SqliteByHand, Side::Sqlite] {
        cases.extend([1, 16].map(|lanes| Case::new(side, lanes)));
    }
    for broker in Broker::ALL {
        cases.extend([(1, 16), (100, 4)].map(|(batch, lanes)| Case::new(Side::Broker(broker, batch), lanes)));
    }
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
    let mut lines = vec![Line::new("single, 16 lanes, guard on / B", idem, Case::new(Side::ByHand, 16), 1.3)];
    let natural = Case::new(Side::Natural, 16);
    lines.push(Line::new("single natural, 16 lanes / A", natural, Case::new(Side::Autocommit, 16), 0.8));
    let batch = Case::new(Side::Batch(100), 4);
    // The same concurrency on both sides, which is the one at which A performs best.
    let beside = Case::new(Side::Batch(100), 16);
    lines.push(Line::new("batch 100 / B, 16 lanes", beside, Case::new(Side::ByHand, 16), 5.0));
    lines.push(Line::new("batch 100 / A, 16 lanes", beside, Case::new(Side::Autocommit, 16), 2.5));
    let again = |side| Case::new(side, 16).work(Work::Duplicates);
    lines.push(Line::new("duplicates, 16 lanes / B", again(Side::Idem), again(Side::ByHand), 1.1));
    let copies = batch.work(Work::Duplicates);
    let a_second = "duplicates a second, batch 100, 4 lanes".to_owned();
    lines.push(Line { what: a_second, case: copies, to: None, least: 100_000.0 });
    let staged = |side| Case::new(side, 16).work(Work::Staged);
    lines.push(Line::new("one outgoing, single, 16 lanes / B", staged(Side::Idem), staged(Side::ByHand), 1.3));
    lines.push(Line::new("one outgoing, batch 100, 16 lanes / B", staged(Side::Batch(100)), staged(Side::ByHand), 4.0));
    lines.push(Line::new("one outgoing / none, single, 16 lanes", staged(Side::Idem), idem, 0.85));
    // Random keys change other pages of the index with each claim.
    let random = if rows > TEN_MILLION { 0.7 } else { 0.9 };
    lines.push(Line::new("batch 100, all claims / empty", batch.on(Size::Full), batch, random));
    lines.push(Line::new("batch 100, all claims, growing keys / empty", batch.on(Size::Growing), batch, 0.9));
    let (sqlite, by_hand) = (Case::new(Side::Sqlite, 16), Case::new(Side::SqliteByHand, 16));
    lines.push(Line::new("SQLite, 16 lanes / B", sqlite, by_hand, 1.0));
    lines.extend(from_brokers());
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
