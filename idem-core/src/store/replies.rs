//! The replies to requests: written with their claims, and found by them.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use super::{Answer, HandlerId, Identity, Store};

/// The reply to a request, as the database has it.
#[derive(Clone, PartialEq, Eq)]
// Exhaustive: a store that did not write a new part of it would change replies, so it must not compile.
pub struct StoredReply {
    /// The status code.
    pub status: u16,
    /// The headers, by an encoding of the layer that made the reply.
    pub headers: Bytes,
    /// The body.
    pub body: Bytes,
}

/// Shows the sizes only: a reply may have personal data.
impl fmt::Debug for StoredReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |part: &Bytes| format!("{} bytes", part.len());
        f.debug_struct("StoredReply")
            .field("status", &self.status)
            .field("headers", &bytes(&self.headers))
            .field("body", &bytes(&self.body))
            .finish()
    }
}

/// A store that keeps the replies to requests, each in the transaction of its claim, and as long as its claim.
pub trait Replies: Store {
    /// The connection that a transaction lends to the handler of a request.
    type Connection: Send + 'static;

    /// Whether a [lock timeout](super::StoreError::LockTimeout) of [`begin_first`](super::Transactions::begin_first) says that
    /// another transaction holds the same claim. Otherwise it may be any other transaction.
    const WAITS_FOR_CLAIM: bool;

    /// Lends the connection of the transaction to a handler, as [`HasConnection`](super::HasConnection) does.
    fn lend(txn: &mut Self::Txn) -> &mut Self::Connection;

    /// Interns the handler of requests with this name, as [`register`](super::Consumers::register) does. Its claims, and their
    /// replies, are kept for `retention`, unless they were kept for longer before.
    fn register_requests(&self, name: &str, retention: Duration) -> impl Future<Output = Answer<HandlerId>> + Send;

    /// Keeps the reply of the request that this transaction has claimed, in memory: [`commit`](super::Transactions::commit)
    /// writes it after its guard. If it does nothing, the reply is dropped.
    fn keep_reply(&self, txn: &mut Self::Txn, request: &Identity, reply: StoredReply);

    /// Reads the reply to a request whose claim this transaction has found, and rolls the transaction back. `None`: its claim
    /// was made without a reply.
    fn find_reply(
        &self,
        txn: Self::Txn,
        request: &Identity,
    ) -> impl Future<Output = Answer<Option<StoredReply>>> + Send;
}

/// The name of the handler of requests, in the table of handlers.
pub(crate) const REQUEST: &str = "request";
