//! The steps of the model, and the steps of a real worker that they stand for.

use crate::traces::shown::{self, Shown, Table};
use crate::traces::trace_step::TraceStep;

use Shown::{Free, Line, Never, Unanswered};

/// A row is fetched. One that has an answer is fetched to be completed, which is a line of the model of messages.
pub(super) const FETCHES: &str = "fetches the row, which says that a call has begun";
/// A lease ends although its worker lives.
pub(super) const PAUSED: &str = "is paused for longer than its lease";
/// A process ends.
pub(super) const KILLED: &str = "is killed";
/// The key of a call gets old.
pub(super) const OLD: &str = "the life of the key is almost over";
/// A request arrives: a line if its worker waits for the answer.
pub(super) const ARRIVES: [&str; 3] = ["charges", "answers as before", "answers that it is busy, and does nothing"];
/// The replies of the provider to a question, and what an operator does, with the word in a line.
pub(super) const WORDS: [(&str, &str); 5] = [
    ("asks the provider, which has charged", "there"),
    ("asks the provider, which has not charged", "not-there"),
    ("asks the provider, which cannot tell", "unknown"),
    ("resolves the row by the answer", "answer"),
    ("resolves the row by another call", "call"),
];

/// Each sentence of the model's steps.
const TABLE: &Table = &[
    // row
    (FETCHES, &[Line(TraceStep::CallFetched), Free]),
    ("sees by its clock that its lease is over", &[Free]),
    ("finds the answer in the row", &[Line(TraceStep::Started)]),
    (
        "snoozes the row, without a call",
        &[Line(TraceStep::CallSnoozed), Line(TraceStep::CallNotDone), Line(TraceStep::QuestionFailed)],
    ),
    ("begins a call", &[Free]),
    ("sends its request", &[Line(TraceStep::Sent)]),
    ("sees before it sends that its lease is over", &[Free]),
    (WORDS[0].0, &[Line(TraceStep::Asked)]),
    (WORDS[1].0, &[Line(TraceStep::Asked)]),
    (WORDS[2].0, &[Line(TraceStep::Asked)]),
    ("cannot know what became of the call: the row is dead, unresolved", &[Line(TraceStep::Unresolved)]),
    ("dates the call anew", &[Line(TraceStep::CallDated)]),
    ("keeps the answer", &[Line(TraceStep::AnswerKept)]),
    ("keeps the answer, although it has lost the row", &[Line(TraceStep::AnswerKept)]),
    ("completes with the answer", &[Line(TraceStep::Committed)]),
    // That it was recorded is a line of the model of messages.
    ("fails to complete, and records the failure", &[Line(TraceStep::RolledBack), Unanswered(TraceStep::Committed)]),
    ("has an answer, but the row no longer has its token", &[Line(TraceStep::RolledBack), Free]),
    ("records that its call had no effect", &[Line(TraceStep::CallNotDone)]),
    ("records that its call had no effect, and was the last attempt", &[Line(TraceStep::CallNotDone)]),
    ("records that its call is in doubt", &[Line(TraceStep::CallDoubted)]),
    ("records that its call is in doubt, and was the last attempt", &[Line(TraceStep::CallDoubted)]),
    ("finds that the row no longer has its token", &[Free]),
    // provider
    (ARRIVES[0], &[Line(TraceStep::Answered), Free]),
    (ARRIVES[1], &[Line(TraceStep::Answered), Free]),
    (ARRIVES[2], &[Line(TraceStep::CallFailed), Free]),
    ("loses the connection of its call, whose request goes on", &[Line(TraceStep::CallFailed)]),
    ("loses the connection of its call, and the request with it", &[Line(TraceStep::CallFailed)]),
    (OLD, &[Free]),
    // failure, operator
    (PAUSED, &[Free]),
    ("replays the row", &[Line(TraceStep::CallReplayed)]),
    (WORDS[3].0, &[Line(TraceStep::Resolved)]),
    (WORDS[4].0, &[Line(TraceStep::Resolved)]),
    ("discards the row", &[Line(TraceStep::CallDiscarded)]),
    // The end of a process is that of all its work, and so more than one step.
    (KILLED, &[Never]),
    // No line tells what the provider remembers.
    ("forgets the key", &[Never]),
    ("backs the database up", &[Never]),
    ("restores the backup", &[Never]),
    ("restores a backup from before the message, which comes again", &[Never]),
    // The lines are those of one message.
    ("publishes another message with the same key and content", &[Never]),
    // Defects.
    ("fetches the row", &[Never]),
    ("uses a new key", &[Never]),
];

/// The entry of the step with this sentence; `None`: it has none.
pub(super) fn shown(sentence: &str) -> Option<&'static [Shown]> {
    shown::shown(TABLE, sentence)
}
