//! Broken rules of calls. The search must find a violation for each.

use crate::property::Property;

/// One rule that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defect {
    KeyChangedOnRetry,
    OldKeyUsedAgain,
    KeyUsedToItsEnd,
    NewKeyWithoutAsking,
    CalledAtAfterTheCall,
    KeptAnswerIgnored,
    AnswerNotKept,
    CompletedWithoutToken,
    BegunCallRepeated,
    LeaseShorterThanTheCall,
    DoubtGivesBackAtOnce,
    CallsAfterItsLease,
    BusyIsADoubt,
    SendsAfterAPause,
    ReplayEndsTheLease,
    ResolvesTooEarly,
    KeyMadeAtTheTake,
    KeyReplaced,
    FirstKeyRandom,
    FirstKeyOfTheContent,
}

impl Defect {
    /// All of them, each with what is done instead of the rule, and the property that it violates.
    pub(crate) const ALL: &'static [(Self, &'static str, Property)] = &[
        (Self::KeyChangedOnRetry, "a call is repeated under another key", Property::ChargedOnce),
        (Self::OldKeyUsedAgain, "a key is used again however old it is", Property::ChargedOnce),
        (Self::KeyUsedToItsEnd, "a key is used to the end of its life, without a margin", Property::ChargedOnce),
        (Self::NewKeyWithoutAsking, "a new key follows an old one without asking the provider", Property::ChargedOnce),
        (Self::CalledAtAfterTheCall, "the time of the first call is written after it", Property::ChargedOnce),
        (Self::KeptAnswerIgnored, "a call is repeated although its answer is kept", Property::AnswersKept),
        (Self::AnswerNotKept, "the answer is not kept before the completion", Property::InnocentsLive),
        (Self::CompletedWithoutToken, "a completion does not delete its row by the token", Property::NothingTwice),
        (Self::BegunCallRepeated, "a call to a provider without keys is repeated", Property::ChargedOnce),
        (Self::LeaseShorterThanTheCall, "a lease ends before the call can have ended", Property::ChargedOnce),
        (
            Self::DoubtGivesBackAtOnce,
            "a call in doubt makes its row due before the call can have ended",
            Property::ChargedOnce,
        ),
        (Self::CallsAfterItsLease, "a worker calls without looking at its lease", Property::ChargedOnce),
        (Self::BusyIsADoubt, "a call that certainly had no effect counts as begun", Property::InnocentsLive),
        (
            Self::SendsAfterAPause,
            "a worker looks at its lease when a call begins, and not when it sends",
            Property::ChargedOnce,
        ),
        (Self::ReplayEndsTheLease, "a replay makes a call in doubt due at once", Property::ChargedOnce),
        (
            Self::ResolvesTooEarly,
            "an operator lets call again while a request may be on its way",
            Property::ChargedOnce,
        ),
        (Self::KeyMadeAtTheTake, "a key is made when its row is taken, and is not in a backup", Property::ChargedOnce),
        (Self::KeyReplaced, "a new key replaces one under which nothing was found", Property::ChargedOnce),
        (Self::FirstKeyRandom, "the first key of a message from a stream is random", Property::ChargedOnce),
        (
            Self::FirstKeyOfTheContent,
            "the first key of a message is that of each one with its key and content",
            Property::NothingLost,
        ),
    ];
}
