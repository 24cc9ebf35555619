//! The worlds that are searched: what the handler does, and which failures may come.

use super::defect::Defect;

/// A message that was started so often is not started again.
pub(super) const MAX_STARTS: u8 = 4;
/// How often a message may fail in one process.
pub(super) const MAX_ATTEMPTS: u8 = 2;

/// A world to search.
#[derive(Debug, Clone)]
pub(crate) struct World {
    /// Its subject.
    pub(crate) name: &'static str,
    pub(super) handler: Handler,
    /// How often a process may be killed from outside.
    pub(super) kills: u8,
    /// How many answers may be lost.
    pub(super) losses: u8,
    /// How often a lease may end while its process hangs.
    pub(super) hangs: u8,
    /// The rule that is broken.
    pub(super) defect: Option<Defect>,
}

/// The behaviour of the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handler {
    /// It succeeds.
    Succeeds,
    /// It succeeds or fails.
    MayFail,
    /// It ends its process.
    Kills,
    /// One of its writes fails behind another one.
    HalfApplied,
}

impl World {
    /// Whether this rule is broken.
    pub(super) fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// The same world with a broken rule.
    pub(crate) fn broken(self, defect: Defect) -> Self {
        Self { defect: Some(defect), ..self }
    }
}

/// The worlds. Processes that are killed or hang as often as a message may be started make a dead letter of any message, so one that
/// succeeds has fewer of both.
pub(crate) fn worlds() -> Vec<World> {
    let world = |name, handler, kills| World { name, handler, kills, losses: 3, hangs: 3, defect: None };
    vec![
        World { hangs: 2, ..world("a key-value store, and a message that succeeds", Handler::Succeeds, 1) },
        world("a key-value store, and a message that may fail", Handler::MayFail, 3),
        world("a key-value store, and a killer", Handler::Kills, 2),
        world("a key-value store, and writes that are half applied", Handler::HalfApplied, 3),
    ]
}

/// The world in which this broken rule must fail.
pub(crate) fn of(defect: Defect) -> World {
    let (handler, kills, losses) = match defect {
        Defect::AnyTokenBuries => (Handler::MayFail, 0, 0),
        Defect::HalfRunsAgain => (Handler::HalfApplied, 1, 0),
        Defect::HalfIsDone => (Handler::HalfApplied, 0, 0),
        Defect::LeaseStays => (Handler::Succeeds, 1, 0),
        Defect::RecordEndsWithLease => (Handler::Kills, 0, 0),
        Defect::EachAnswerIsAStart => (Handler::Succeeds, 0, MAX_STARTS),
        Defect::ReleaseKeepsStart => (Handler::Succeeds, 0, 0),
        Defect::DoneAtTheStart | Defect::AckedBeforeDone | Defect::EffectBeforeRecord | Defect::AnyTokenCompletes => {
            (Handler::MayFail, 1, 1)
        }
    };
    let hangs = u8::from(handler != Handler::Succeeds);
    World { name: "", handler, kills, losses, hangs, defect: None }
}
