//! Deliveries that wait, and the reason for each: its turn, its key, its claim, a refusal of the database, its codec, or
//! its inbox row.

use tracing::Span;

use crate::runtime::{Carried, KeyTicket};
use crate::store::Identity;
use crate::{Delivery, Outcome};

/// A delivery that cannot run now.
pub(crate) enum Waiting<A> {
    /// Another delivery of its ordering key comes first.
    Turn(Box<Delivery>, A, KeyTicket),
    /// Another delivery of its message's key is in progress. It stays unacked and keeps its places.
    Key(Box<Delivery>, A, Carried),
    /// Another process or another worker holds its claim, perhaps for as long as a handler runs. It stays unacked, keeps
    /// its places, and is tried again later.
    Busy(Box<Delivery>, A, Carried),
    /// The database refuses its row but accepts others. It stays unacked, keeps its place if it has one, and is tried
    /// again later.
    Refused(Box<Delivery>, A, Carried),
    /// Its codec has to fetch something before it can decode it. It stays unacked and keeps its place if it has one.
    Preparation(Box<Delivery>, A, Carried),
    /// Its message is in the inbox. It stays unacked and keeps its place until the row is processed or dead.
    Row(Box<RowWait<A>>),
}

/// A delivery whose message runs from the inbox.
pub(crate) struct RowWait<A> {
    pub(crate) delivery: Box<Delivery>,
    pub(crate) acker: A,
    /// Held, so that no other delivery of its ordering key starts.
    pub(crate) place: Option<KeyTicket>,
    pub(crate) identity: Box<Identity>,
    pub(crate) outcome: Outcome,
    pub(crate) span: Span,
}

impl<A> Waiting<A> {
    /// A delivery whose message is in the inbox, in the current span.
    pub(super) fn row(
        delivery: Box<Delivery>,
        acker: A,
        place: Option<KeyTicket>,
        outcome: Outcome,
        identity: Box<Identity>,
    ) -> Self {
        Self::Row(Box::new(RowWait { delivery, acker, place, identity, outcome, span: Span::current() }))
    }
}
