//! Consumers: their handlers, what operators do with their dead letters, and the maintenance of the tables.

use uuid::Uuid;

use super::{
    Answer, Filter, HandlerId, HandlerMark, KnownHandler, Page, Replay, Replayed, Resolution, Row, Stats, Transactions,
};

/// The methods of a store for the start of a worker, for its maintenance, and for operators.
pub trait Consumers: Transactions {
    /// Interns the names under this consumer, in the order given, and raises their retention to that of this store if
    /// it is lower. The empty name stands for "no handler known". The number of a new name is a hash of consumer and name, so that
    /// the name gets it again if its row was lost by a restore, and no other name gets it.
    fn register(&self, consumer: &str, names: &[&str]) -> impl Future<Output = Answer<Vec<HandlerId>>> + Send;

    /// Lets both names of this consumer be one handler, whose row then has the name `new`, unless `old` has no number or
    /// nothing belongs to it. Registering either of them returns the same number from then on: that of `old` if neither has one,
    /// which the handler has had if a restore has lost it. `false`, and nothing is changed, if they are two handlers to each of
    /// which claims or rows belong. Repeating it changes nothing.
    fn rename(&self, consumer: &str, old: &str, new: &str) -> impl Future<Output = Answer<bool>> + Send;

    /// Records something about handlers. Repeating it changes nothing. `false` if one of them is not in the database any more.
    fn mark(&self, handlers: &[HandlerId], mark: HandlerMark) -> impl Future<Output = Answer<bool>> + Send;

    /// Lists the handlers of this consumer, or of all, by consumer and name.
    fn handlers(&self, consumer: Option<&str>) -> impl Future<Output = Answer<Vec<KnownHandler>>> + Send;

    /// Returns the fill level of the inbox of these handlers. It counts rows, so call it rarely.
    fn stats(&self, handlers: &[HandlerId]) -> impl Future<Output = Answer<Stats>> + Send;

    /// Lists the inbox rows of a consumer, newest first. The key is one of [`Filter::keys`].
    fn list(&self, consumer: &str, filter: &Filter, page: Page) -> impl Future<Output = Answer<Vec<Row>>> + Send;

    /// Makes a dead row due now, with no attempt, no start and no token. A row whose external call may have begun,
    /// and that has no answer, goes back to its call phase, with its key, and is due when its lease has ended.
    fn replay(&self, consumer: &str, id: i64, how: Replay<'_>) -> impl Future<Output = Answer<Replayed>> + Send;

    /// Does what an operator has decided about a dead row: the row is due now with this answer, or, once its lease has ended, with
    /// the [next key](super::next_provider_key) and no call begun; or it is deleted, and the `processed_at` of the claim that it
    /// owned is set, in one statement if the database supports it. `false` if there is no such row, or if it is to be called
    /// again although it has an answer.
    ///
    /// `provider_key`: the row has to have this key of its external call. Without one, it is only discarded, and not if its call
    /// has begun or has an answer.
    fn resolve(
        &self,
        consumer: &str,
        id: i64,
        provider_key: Option<Uuid>,
        how: &Resolution,
    ) -> impl Future<Output = Answer<bool>> + Send;

    /// Deletes claims that are older than the retention of their handler, in small transactions, each of which also
    /// records the cutoff. Returns how many. Only one pruner works at a time, for all handlers; a second one returns 0
    /// immediately.
    ///
    /// A claim without a date stays, and so does one beside which there is an inbox row. One that another transaction has locked
    /// is skipped. The cutoff is the date of the newest deleted claim of its handler, and never falls. A clock that has jumped
    /// forward since the last call makes no claim old.
    ///
    /// A store may look at a part of its claims in each call, and continue there in the next one, as long as it deletes a
    /// claim at most a twentieth of the retention late, if it is called once a minute. Those of this crate walk through
    /// the table of claims, up to some 100,000 claims at once.
    fn prune(&self) -> impl Future<Output = Answer<u64>> + Send;
}
