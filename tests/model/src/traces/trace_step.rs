//! The steps that a line of a trace can name.

/// A part of the model, against which lines are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Deliveries and rows.
    Messages,
    /// External calls.
    Calls,
    /// The outbox.
    Relay,
}

/// A step of a real worker, a relay, an operator or a broker, about one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TraceStep {
    /// A delivery reached a worker. `stores`: it must be stored before it runs.
    Received,
    /// A transaction has inserted the claim; its handler runs next.
    Claimed,
    /// A transaction has deleted the row by its token and dated the claim; its handler runs next.
    Started,
    /// The transaction with the effect was committed. `of`: with its claim, or with its row.
    Committed,
    /// The transaction was rolled back.
    RolledBack,
    /// The handler committed the transaction by itself.
    EndedByHandler,
    /// The message was stored as a row, not run.
    Stored,
    /// A failed direct run was recorded as a row.
    Failed,
    /// Another message holds the claim: the row of a conflict was written.
    Conflict,
    /// The dead row of a message whose handler ran COMMIT was written.
    DeadCommitted,
    /// The broker got the ack.
    Acked,
    /// The worker gave a delivery up, or the broker has taken it back.
    Gone,
    /// The row was fetched, and its start counted.
    Fetched,
    /// The result of a run was recorded. `result`: failed or broke.
    Recorded,
    /// A fetched row was snoozed, not run.
    Snoozed,
    /// The start of a row whose lease was lost was refunded.
    Refunded,
    /// The row has had all its starts, and is dead.
    Crashed,
    /// An operator replayed the dead row.
    Replayed,
    /// An operator discarded the dead row.
    Discarded,
    /// The process ended.
    Died,
    /// The state of the database at the end. `row`: none, scheduled or dead. `claim`: none, undated or dated.
    Left,
    /// The row was fetched for its call. `key`: the key that it has. `lease`: from now on.
    CallFetched,
    /// The request of the call was sent under this key.
    Sent,
    /// The call has returned an answer.
    Answered,
    /// The call has returned an error, or was given up.
    CallFailed,
    /// The answer was kept: the row is an ordinary one.
    AnswerKept,
    /// It was recorded that the call may have had an effect, and that its request may still be on its way.
    CallDoubted,
    /// It was recorded that the call certainly had no effect. `unused`: none has begun under its key.
    CallNotDone,
    /// The row was snoozed, not called. `unused`: as above.
    CallSnoozed,
    /// The provider was asked what became of the call. `reply`: there, not-there or unknown.
    Asked,
    /// It was recorded that the question has failed.
    QuestionFailed,
    /// The call was dated anew, since the provider knows of none under its key, `key`. `lease`: from now on.
    CallDated,
    /// The row is dead, unresolved: nobody knows what became of its call.
    Unresolved,
    /// An operator resolved a dead row. `by`: answer or call.
    Resolved,
    /// An operator replayed a row that died in its call phase.
    CallReplayed,
    /// An operator discarded a row that died in its call phase.
    CallDiscarded,
    /// The lease was taken. `lease`: from now on.
    LeaseTaken,
    /// It was renewed. `lease`: from now on.
    LeaseRenewed,
    /// It was released.
    LeaseGiven,
    /// The message was read. `id`: its place in the outbox. `order`: its key.
    Read,
    /// The message was sent to the broker.
    Published,
    /// The broker has confirmed it.
    Confirmed,
    /// The broker has refused it.
    Refused,
    /// The broker has not answered, or the relay has not waited for it.
    Unconfirmed,
    /// The message was deleted from the outbox.
    Deleted,
    /// The refusal of the message was recorded. `dead`: it was given up.
    RefusalRecorded,
}

/// The names of the steps in a trace.
const NAMES: &[(&str, TraceStep)] = &[
    ("received", TraceStep::Received),
    ("claimed", TraceStep::Claimed),
    ("started", TraceStep::Started),
    ("committed", TraceStep::Committed),
    ("rolled-back", TraceStep::RolledBack),
    ("ended-by-handler", TraceStep::EndedByHandler),
    ("stored", TraceStep::Stored),
    ("failed", TraceStep::Failed),
    ("conflict", TraceStep::Conflict),
    ("dead-committed", TraceStep::DeadCommitted),
    ("acked", TraceStep::Acked),
    ("gone", TraceStep::Gone),
    ("fetched", TraceStep::Fetched),
    ("recorded", TraceStep::Recorded),
    ("snoozed", TraceStep::Snoozed),
    ("refunded", TraceStep::Refunded),
    ("crashed", TraceStep::Crashed),
    ("replayed", TraceStep::Replayed),
    ("discarded", TraceStep::Discarded),
    ("died", TraceStep::Died),
    ("left", TraceStep::Left),
    ("call-fetched", TraceStep::CallFetched),
    ("sent", TraceStep::Sent),
    ("answered", TraceStep::Answered),
    ("call-failed", TraceStep::CallFailed),
    ("answer-kept", TraceStep::AnswerKept),
    ("call-doubted", TraceStep::CallDoubted),
    ("call-not-done", TraceStep::CallNotDone),
    ("call-snoozed", TraceStep::CallSnoozed),
    ("asked", TraceStep::Asked),
    ("question-failed", TraceStep::QuestionFailed),
    ("call-dated", TraceStep::CallDated),
    ("unresolved", TraceStep::Unresolved),
    ("resolved", TraceStep::Resolved),
    ("call-replayed", TraceStep::CallReplayed),
    ("call-discarded", TraceStep::CallDiscarded),
    ("lease-taken", TraceStep::LeaseTaken),
    ("lease-renewed", TraceStep::LeaseRenewed),
    ("lease-given", TraceStep::LeaseGiven),
    ("read", TraceStep::Read),
    ("published", TraceStep::Published),
    ("confirmed", TraceStep::Confirmed),
    ("refused", TraceStep::Refused),
    ("unconfirmed", TraceStep::Unconfirmed),
    ("deleted", TraceStep::Deleted),
    ("refusal-recorded", TraceStep::RefusalRecorded),
];

impl TraceStep {
    /// The step of this name; `None` if the model does not know it.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        NAMES.iter().find(|(of, _)| *of == name).map(|(_, step)| *step)
    }

    /// Whether it is a step of this part. The completion of a call is one of a row as well.
    pub(crate) fn is_of(self, part: Part) -> bool {
        match part {
            Part::Messages => !self.is_of_call() && !self.is_of_relay(),
            Part::Calls => {
                let completes = matches!(self, Self::Started | Self::Committed | Self::RolledBack);
                completes || matches!(self, Self::Stored | Self::Died | Self::Left) || self.is_of_call()
            }
            Part::Relay => self == Self::Died || self.is_of_relay(),
        }
    }

    /// Whether it is a step of a row in its call phase.
    pub(crate) fn is_of_call(self) -> bool {
        let calls = matches!(self, Self::CallFetched | Self::Sent | Self::Answered | Self::CallFailed);
        let records = matches!(self, Self::AnswerKept | Self::CallDoubted | Self::CallNotDone | Self::CallSnoozed);
        let asks = matches!(self, Self::Asked | Self::QuestionFailed | Self::CallDated | Self::Unresolved);
        calls || records || asks || matches!(self, Self::Resolved | Self::CallReplayed | Self::CallDiscarded)
    }

    /// Whether it is a step of a relay, about a lease or a message of the outbox.
    fn is_of_relay(self) -> bool {
        let lease = matches!(self, Self::LeaseTaken | Self::LeaseRenewed | Self::LeaseGiven);
        let broker = matches!(self, Self::Published | Self::Confirmed | Self::Refused | Self::Unconfirmed);
        lease || broker || matches!(self, Self::Read | Self::Deleted | Self::RefusalRecorded)
    }
}
