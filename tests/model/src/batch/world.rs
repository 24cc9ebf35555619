//! The worlds that are searched: what the handlers of a batch do, and which failures may come.

use super::defect::Defect;

/// The number of starts that makes a message a dead letter.
pub(super) const MAX_STARTS: u8 = 4;
/// How often a message may fail.
pub(super) const MAX_ATTEMPTS: u8 = 2;

/// A world to search.
#[derive(Debug, Clone)]
pub(crate) struct World {
    /// Its subject.
    pub(crate) name: &'static str,
    /// The behaviour of each message's handler, in the order of the batch.
    pub(super) handlers: &'static [Handler],
    /// Whether the first message is delivered twice.
    pub(super) copy: bool,
    /// Whether the handlers are natural: a first delivery makes no claim, and a handler that finds its own writes does
    /// nothing.
    pub(super) natural: bool,
    /// Whether the handlers stage messages, and so each of these natural ones runs alone.
    pub(super) stages: bool,
    /// How often the process may be killed.
    pub(super) kills: u8,
    /// How often a commit may have no answer.
    pub(super) losses: u8,
    /// The rule that is broken.
    pub(super) defect: Option<Defect>,
}

/// The behaviour of a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handler {
    /// It writes, and succeeds.
    Succeeds,
    /// It fails.
    Fails,
    /// It ends its process.
    Kills,
    /// It runs COMMIT, and returns as if it had succeeded.
    RunsCommit,
    /// It runs ROLLBACK, and returns as if it had succeeded.
    RunsRollback,
}

impl World {
    /// Whether this rule is broken.
    pub(super) fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// The deliveries, each with its message.
    pub(super) fn deliveries(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let count = self.handlers.len();
        (0..count + usize::from(self.copy)).map(move |delivery| (delivery, if delivery < count { delivery } else { 0 }))
    }

    /// The same world with a broken rule.
    pub(crate) fn broken(self, defect: Defect) -> Self {
        Self { defect: Some(defect), ..self }
    }
}

use Handler::{Fails, Kills, RunsCommit, RunsRollback, Succeeds};

/// The worlds, each with the failures that make it small enough for CI, and more of them otherwise.
pub(crate) fn worlds(small: bool) -> Vec<World> {
    let failures = if small { 2 } else { 3 };
    let world = |name, handlers| World {
        name,
        handlers,
        copy: true,
        natural: false,
        stages: false,
        kills: failures,
        losses: failures,
        defect: None,
    };
    let natural = |name, handlers| World { natural: true, ..world(name, handlers) };
    vec![
        world("a message that fails in a batch", &[Succeeds, Fails, Succeeds]),
        world("a killer in a batch", &[Succeeds, Kills, Succeeds]),
        world("a handler that runs COMMIT in a batch", &[Succeeds, RunsCommit, Succeeds]),
        world("a handler that runs ROLLBACK in a batch", &[Succeeds, RunsRollback, Succeeds]),
        natural("a natural handler that fails in a batch", &[Succeeds, Fails, Succeeds]),
        natural("a natural handler that runs COMMIT in a batch", &[Succeeds, RunsCommit, Succeeds]),
        // A copy of it that runs concurrently with its row is a limit: its COMMIT is only logged, and the row then finds its
        // effect.
        World {
            copy: false,
            stages: true,
            ..natural("a natural handler that stages and runs COMMIT", &[Succeeds, RunsCommit, Succeeds])
        },
        natural("a natural handler that runs ROLLBACK in a batch", &[Succeeds, RunsRollback, Succeeds]),
    ]
}

/// The world in which this broken rule must fail.
pub(crate) fn of(defect: Defect) -> World {
    let handlers: &[Handler] = match defect {
        Defect::CopyAckedBeforeItsFirst => &[Succeeds],
        Defect::CommitNotRefused => &[RunsCommit, Succeeds],
        Defect::StagesBesideOthers => &[Succeeds, RunsCommit],
        Defect::WritesOutsideTransactions | Defect::NoGuard => &[RunsRollback, Succeeds],
        Defect::BatchRecordsAttempts => &[Succeeds, Fails],
    };
    let (copy, natural) = (defect == Defect::CopyAckedBeforeItsFirst, defect == Defect::StagesBesideOthers);
    World { name: "", handlers, copy, natural, stages: natural, kills: 0, losses: 0, defect: None }
}
