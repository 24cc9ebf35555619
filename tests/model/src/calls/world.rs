//! The worlds that are searched: how the provider recognizes a call, and which failures may come.

use super::defect::Defect;
use super::state::Left;

/// A world to search.
#[derive(Debug, Clone)]
pub(crate) struct World {
    /// Its subject.
    pub(crate) name: &'static str,
    /// The provider knows no keys, as of mails: a call that was begun is not repeated.
    pub(super) at_most_once: bool,
    /// The provider can be asked what became of a call.
    pub(super) reconciles: bool,
    /// Keys do not get old: everything happens within their life.
    pub(super) keys_last: bool,
    /// A request may be on its way for longer than the lease of its row: its worker was paused in the middle of sending it, or
    /// the network holds it.
    pub(super) outlives: bool,
    /// The failures that may come.
    pub(super) left: Left,
    /// The rule that is broken.
    pub(super) defect: Option<Defect>,
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

const NONE: Left = Left {
    kills: 0,
    pauses: 0,
    losses: 0,
    busy: 0,
    failures: 0,
    replays: 0,
    resolutions: 0,
    unknown: 0,
    restores: 0,
    rewinds: 0,
    others: 0,
};

/// No failure, and a provider with keys that cannot be asked.
const BARE: World = World {
    name: "",
    at_most_once: false,
    reconciles: false,
    keys_last: false,
    outlives: false,
    left: NONE,
    defect: None,
};

impl World {
    /// The world of a trace, with such a provider. Nobody sees how long a request is on its way.
    pub(super) fn traced(at_most_once: bool, reconciles: bool, left: Left) -> Self {
        Self { name: "a trace", at_most_once, reconciles, outlives: true, left, ..BARE }
    }
}

/// The worlds, each with the failures that make it small enough for CI, and more of them otherwise.
pub(crate) fn worlds(small: bool) -> Vec<World> {
    let more = u8::from(!small);
    let left = Left { kills: 1 + more, pauses: 1 + more, losses: 2, busy: 1, failures: 1 + more, ..NONE };
    let world = |name, at_most_once, reconciles| World { name, at_most_once, reconciles, left, ..BARE };
    let keyed = World { reconciles: true, keys_last: true, ..BARE };
    let late = Left { kills: 1, pauses: 1 + more, losses: 1 + more, busy: 1, ..NONE };
    let replayed = Left { pauses: 1, losses: 1 + more, replays: 1 + more, ..NONE };
    let resolved = Left { kills: 1, pauses: more, losses: 1 + more, resolutions: 1 + more, ..NONE };
    let restored = Left { kills: more, losses: 1, restores: 1 + more, ..NONE };
    let rewound = Left { kills: more, losses: 1, rewinds: 1 + more, ..NONE };
    let others = Left { kills: more, losses: 1, others: 1 + more, ..NONE };
    let asked = World { reconciles: true, left: restored, ..BARE };
    vec![
        world("a provider with keys that can be asked", false, true),
        world("a provider with keys that cannot be asked", false, false),
        world("a provider without keys that can be asked", true, true),
        world("a provider without keys that cannot be asked", true, false),
        World { name: "a request outlives its lease", outlives: true, left: late, ..keyed.clone() },
        World { name: "a backup is restored within the life of a key", left: restored, ..keyed.clone() },
        World { name: "a backup is restored, however old a key is", ..asked.clone() },
        World { name: "a backup is restored, and the provider knows no keys", at_most_once: true, ..asked.clone() },
        World { name: "a message comes again behind a backup, within the life of a key", left: rewound, ..keyed },
        World { name: "another message has the same key and content", left: others, ..asked },
        World {
            name: "an operator replays a call in doubt",
            at_most_once: true,
            reconciles: true,
            left: replayed,
            ..BARE
        },
        World { name: "an operator resolves a call in doubt", at_most_once: true, left: resolved, ..BARE },
    ]
}

/// The world in which this broken rule must fail.
pub(crate) fn of(defect: Defect) -> World {
    let loss = Left { losses: 1, ..NONE };
    let (at_most_once, left) = match defect {
        Defect::KeyChangedOnRetry | Defect::OldKeyUsedAgain | Defect::NewKeyWithoutAsking => (false, loss),
        Defect::KeyUsedToItsEnd => (false, loss),
        Defect::CalledAtAfterTheCall => (false, Left { kills: 1, ..NONE }),
        Defect::KeptAnswerIgnored => (false, Left { failures: 1, ..NONE }),
        Defect::AnswerNotKept => (true, Left { failures: 1, ..NONE }),
        Defect::CompletedWithoutToken => (false, Left { pauses: 1, ..NONE }),
        Defect::BegunCallRepeated => (true, loss),
        Defect::LeaseShorterThanTheCall => (true, Left { kills: 1, ..NONE }),
        Defect::DoubtGivesBackAtOnce => (true, loss),
        Defect::CallsAfterItsLease => (true, Left { pauses: 1, ..NONE }),
        Defect::BusyIsADoubt => (true, Left { busy: 1, ..NONE }),
        Defect::SendsAfterAPause => (true, Left { pauses: 1, ..NONE }),
        Defect::ReplayEndsTheLease => (true, Left { losses: 1, replays: 1, ..NONE }),
        Defect::ResolvesTooEarly => (true, Left { losses: 1, replays: 1, resolutions: 1, ..NONE }),
        Defect::KeyMadeAtTheFetch => (false, Left { restores: 1, ..NONE }),
        Defect::KeyReplaced => (false, Left { losses: 1, restores: 1, ..NONE }),
        Defect::FirstKeyRandom => (false, Left { rewinds: 1, ..NONE }),
        Defect::FirstKeyOfTheContent => (false, Left { others: 1, ..NONE }),
    };
    let reconciles = !matches!(defect, Defect::AnswerNotKept | Defect::BusyIsADoubt);
    let keys_last = matches!(defect, Defect::KeyMadeAtTheFetch | Defect::FirstKeyRandom);
    World { at_most_once, reconciles, keys_last, left, ..BARE }
}
