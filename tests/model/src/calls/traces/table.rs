//! The steps of the model, and the steps of a real worker that they stand for.

use crate::traces::seen::Seen;
use crate::traces::shown::{self, Shown, Table};

use Shown::{Free, Line, Never, Unanswered};

/// A row is taken. One that has an answer is taken to be completed, which is a line of the model of messages.
pub(super) const TAKES: &str = "takes the row, which says that a call has begun";
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
    (TAKES, &[Line(Seen::CallTaken), Free]),
    ("sees by its clock that its lease is over", &[Free]),
    ("finds the answer in the row", &[Line(Seen::Started)]),
    (
        "gives the row back, without a call",
        &[Line(Seen::CallGivenBack), Line(Seen::CallNotDone), Line(Seen::QuestionFailed)],
    ),
    ("begins a call", &[Free]),
    ("sends its request", &[Line(Seen::Sent)]),
    ("sees before it sends that its lease is over", &[Free]),
    (WORDS[0].0, &[Line(Seen::Asked)]),
    (WORDS[1].0, &[Line(Seen::Asked)]),
    (WORDS[2].0, &[Line(Seen::Asked)]),
    ("cannot know what became of the call: the row is dead, unresolved", &[Line(Seen::Unresolved)]),
    ("dates the call anew", &[Line(Seen::CallDated)]),
    ("keeps the answer", &[Line(Seen::AnswerKept)]),
    ("keeps the answer, although it has lost the row", &[Line(Seen::AnswerKept)]),
    ("completes with the answer", &[Line(Seen::Committed)]),
    // That it was recorded is a line of the model of messages.
    ("fails to complete, and records the failure", &[Line(Seen::RolledBack), Unanswered(Seen::Committed)]),
    ("has an answer, but the row no longer has its token", &[Line(Seen::RolledBack), Free]),
    ("records that its call had no effect", &[Line(Seen::CallNotDone)]),
    ("records that its call had no effect, and was the last attempt", &[Line(Seen::CallNotDone)]),
    ("records that its call is in doubt", &[Line(Seen::CallDoubted)]),
    ("records that its call is in doubt, and was the last attempt", &[Line(Seen::CallDoubted)]),
    ("finds that the row no longer has its token", &[Free]),
    // provider
    (ARRIVES[0], &[Line(Seen::Answered), Free]),
    (ARRIVES[1], &[Line(Seen::Answered), Free]),
    (ARRIVES[2], &[Line(Seen::CallFailed), Free]),
    ("loses the connection of its call, whose request goes on", &[Line(Seen::CallFailed)]),
    ("loses the connection of its call, and the request with it", &[Line(Seen::CallFailed)]),
    (OLD, &[Free]),
    // failure, operator
    (PAUSED, &[Free]),
    ("replays the row", &[Line(Seen::CallReplayed)]),
    (WORDS[3].0, &[Line(Seen::Resolved)]),
    (WORDS[4].0, &[Line(Seen::Resolved)]),
    ("discards the row", &[Line(Seen::CallDiscarded)]),
    // The end of a process is that of all its work, and so more than one step.
    (KILLED, &[Never]),
    // No line tells what the provider remembers.
    ("forgets the key", &[Never]),
    ("backs the database up", &[Never]),
    ("restores the backup", &[Never]),
    // Defects.
    ("takes the row", &[Never]),
    ("uses a new key", &[Never]),
];

/// The entry of the step with this sentence; `None`: it has none.
pub(super) fn shown(sentence: &str) -> Option<&'static [Shown]> {
    shown::shown(TABLE, sentence)
}
