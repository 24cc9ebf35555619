//! Consumers: their handlers, what operators do with their dead letters, and the maintenance of the tables.

use uuid::Uuid;

use super::{
    Answer, By, HandlerId, HandlerMark, KnownHandler, Of, Question, Replay, Replayed, Resolution, Row, Stats,
    Transactions, Value,
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

    /// Reads the inbox rows with these ids, dead or scheduled, of any consumer, in this order. It leaves out those that are missing.
    fn rows(&self, ids: &[i64]) -> impl Future<Output = Answer<Vec<Row>>> + Send;

    /// Makes dead rows due now, with no attempt, no start and no token. A row whose external call may have begun, and that has no
    /// answer, goes back to its call phase, with its key, and is due when its lease has ended. [`Replay`] says which rows are left
    /// as they are. Each row that is changed is noted in the table `operations` as it was, by the [word](Replay::action) for
    /// it, in the same statement or transaction.
    ///
    /// Returns an answer for each id, in their order. It waits for no other operator: a row that another one changes is not found.
    /// Under a [new key](Replay::As), only the first id is replayed, and the others are not found.
    fn replay(&self, of: Of<'_>, how: Replay<'_>, by: &By)
    -> impl Future<Output = Answer<Vec<(i64, Replayed)>>> + Send;

    /// Does what an operator has decided about dead rows: a row is due now with this answer, or, once its lease has ended, with
    /// the [next key](super::next_provider_key) and no call begun; or it is deleted, and the `processed_at` of the claim that it
    /// owned is set, in one statement or transaction. Each is noted as by [`replay`](Self::replay). Returns the ids of the rows that it
    /// has changed: not that of a row that is to be called again although it has an answer.
    ///
    /// `provider_key`: the row has to have this key of its external call; only the first id is resolved. Without one, rows are only
    /// discarded, and those stay whose call has begun or has an answer.
    fn resolve(
        &self,
        of: Of<'_>,
        provider_key: Option<Uuid>,
        how: &Resolution,
        by: &By,
    ) -> impl Future<Output = Answer<Vec<i64>>> + Send;

    /// Answers a question of an operator, within its patience: the first column of each row, as text, in the order of the statement.
    /// [`Question::name`] and the documentation of `idem_core::operator` say which JSON that is. A question that does not write
    /// changes nothing, and one that is dropped or takes too long is ended in the database. It leaves a connection for the
    /// statements by which leases are extended, if the store has more than one of its own.
    ///
    /// # Errors
    /// [`StoreError::Denied`](super::StoreError::Denied) if the role of the store may not do this.
    fn ask(&self, question: &Question, values: &[Value]) -> impl Future<Output = Answer<Vec<String>>> + Send;

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
    ///
    /// It also deletes some of the operations that are older than 90 days, and the workers and relays that were not seen for a day.
    fn prune(&self) -> impl Future<Output = Answer<u64>> + Send;
}
