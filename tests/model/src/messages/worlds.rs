//! The worlds that are searched. In each, all rules together must hold; each broken rule must fail in one of them.

use super::defect::Defect;
use super::facts::Left;
use super::scenario::{Handler, Message, Scenario};

const NONE: Left = Left {
    kills: 0,
    outages: 0,
    pauses: 0,
    losses: 0,
    returns: 0,
    prunes: 0,
    orders: 0,
    forgets: 0,
    ticks: 0,
    again: 0,
};

/// The worlds, each with the failures that make it small enough for CI, and more of them otherwise. A pause and a lost
/// answer together may cost an innocent message a start, as a kill does, so that worlds with three kills have not both.
pub(crate) fn worlds(small: bool) -> Vec<Scenario> {
    let more = u8::from(!small);
    let world = |name, messages, left| Scenario::new(name, messages, left);
    vec![
        world(
            "a message and its copy",
            COPIES,
            Left { kills: 1 + more, losses: 1 + more, returns: 1, pauses: 1, ..NONE },
        ),
        world("a message that fails once", ONCE, Left { kills: 2, losses: 1 + more, returns: 1, pauses: 1, ..NONE }),
        world(
            "a message that begins again, with no attempt recorded",
            ONCE,
            Left { again: 1 + more, kills: 1, losses: 1, pauses: 1, returns: more, ..NONE },
        ),
        world("two messages with one key", CONFLICT, Left { kills: 1 + more, losses: 1, returns: 1, ..NONE }),
        world("a handler that runs ROLLBACK", ROLLBACK, Left { kills: 1 + more, losses: 1, orders: 1, ..NONE }),
        world("a handler that runs COMMIT", COMMIT, Left { kills: 1 + more, losses: 1, returns: 1, orders: 1, ..NONE }),
        world("kills from outside", INNOCENT, Left { kills: 3, returns: 1 + more, losses: 1, ..NONE }),
        world("a killer beside another", KILLER, Left { kills: 2, returns: 1 + more, ..NONE }),
        world("two killers beside another", KILLERS, Left { kills: 1, returns: more, ..NONE }),
        world("copies of a killer", KILLER_COPIES, Left { returns: more, losses: more, ..NONE }),
        world("paused workers", STORED, Left { kills: 3, pauses: 2 + more, ..NONE }),
        world("paused workers without answers", STORED, Left { kills: 2, pauses: 1, losses: 1, ..NONE }),
        world("a handler that breaks its connection", BREAKER, Left { kills: 1, losses: 1, returns: more, ..NONE }),
        world("lost answers", STORED, Left { kills: 2, losses: 2, ..NONE }),
        world("an outage", KILLER, Left { kills: 1, outages: 1, returns: more, ..NONE }),
        world("two outages", KILLER, Left { outages: 2, returns: more, ..NONE }),
        world("an outage beside copies of a killer", KILLER_COPIES, Left { outages: 1, losses: more, ..NONE }),
        world("an outage of one of two databases", TWO_DATABASES, Left { outages: 1, returns: more, ..NONE }),
        world("a failure beside killers", KILLER_BESIDE_FAILURE, Left { kills: more, pauses: 1, ..NONE }),
        world("prune", PRUNED, Left { prunes: 2, ticks: 2, kills: 1, losses: more, ..NONE }),
        world("prune beside a failure", ONCE, Left { prunes: 2, ticks: 1, kills: 1, losses: more, ..NONE }),
        world("prune beside a conflict", LATE, Left { prunes: 2, ticks: 1, kills: 1, losses: more, ..NONE }),
        world("an operator", FAILS, Left { orders: 2, kills: 1, losses: 1, prunes: 1, returns: more, ..NONE }),
        world(
            "a conflict whose handler gives it another key",
            REKEYED,
            Left { orders: 1, kills: 1, losses: more, ..NONE },
        ),
        world(
            "a claim that an operator forgets",
            FORGOTTEN,
            Left { forgets: 1, kills: 1, losses: 1, returns: more, ..NONE },
        ),
        world("a log", LOG, Left { kills: 1, returns: more, ..NONE }).log(1),
        world("a log with a wider window", LOG, Left { kills: more, returns: 1, ..NONE }).log(2),
        world("a log with a killer behind its window", BEHIND, NONE).log(2),
        world("a log in order", ORDER, Left { kills: 1, returns: 1, losses: 1, pauses: more, ..NONE }).ordered(2),
    ]
}

/// The limits of the protocol: worlds in which all rules hold and an innocent message dies, since kills from outside look
/// like those of a handler, and an outage ends the locks of what was fetched and has not begun. One kill fewer, and it
/// lives.
pub(crate) fn limits() -> Vec<Scenario> {
    let world = |name, messages, left| Scenario::new(name, messages, left);
    vec![
        world("four kills from outside", STORED, Left { kills: 4, ..NONE }),
        world("three kills from outside beside a killer", KILLER, Left { kills: 3, ..NONE }),
        world("two kills from outside beside two killers", KILLERS, Left { kills: 2, ..NONE }),
        world("a kill from outside and two outages beside a killer", KILLER, Left { kills: 1, outages: 2, ..NONE }),
        world(
            "a kill from outside and an outage beside copies of a killer of another database",
            TWO_DATABASES,
            Left { kills: 1, outages: 1, ..NONE },
        ),
    ]
}

/// The world in which this broken rule must fail.
pub(crate) fn of(defect: Defect) -> Scenario {
    let world = |messages, left| Scenario::new("", messages, left);
    let kill = Left { kills: 1, ..NONE };
    match defect {
        Defect::AckBeforeCommit => world(SINGLE, kill),
        Defect::ClaimInOwnTransaction => world(SINGLE, kill),
        Defect::RowDeletedBeforeItsRun | Defect::RowDeletedAfterItsRun => world(ONCE_ALONE, kill),
        Defect::AckOnUncommittedClaim => world(COPIES, kill),
        Defect::UnansweredCommitIsSuccess => world(SINGLE, Left { losses: 1, ..NONE }),
        Defect::NoGuard => world(ROLLBACK, NONE),
        Defect::NoFingerprintCompared => world(CONFLICT, NONE),
        Defect::DeadRowWithoutClaim => world(ROLLBACK, Left { orders: 1, ..NONE }),
        Defect::OutcomeNotAsked => world(COMMIT, NONE),
        Defect::EarlyCommitWrittenAgain => world(COMMIT, Left { losses: 1, orders: 1, ..NONE }),
        Defect::UndatedClaimEndsItsTurn => world(ORDER, Left { returns: 1, ..NONE }).ordered(2),
        Defect::ConflictReplayedUnderItsKey => world(CONFLICT, Left { orders: 1, ..NONE }),
        Defect::FailureStoredWithoutClaim => world(ONCE, NONE),
        Defect::RedeliveredRunDirectly | Defect::StartsNotCounted => world(KILLER, NONE),
        Defect::DuplicatesUseUpTheWindow => world(LOG, NONE).log(1),
        Defect::RecordWithoutToken => world(FAILS, Left { losses: 1, ..NONE }),
        Defect::UnansweredFetchForgotten => world(ONCE_ALONE, Left { losses: 1, ..NONE }),
        Defect::OneStartIsOrdinary => world(KILLER, Left { kills: 2, ..NONE }),
        Defect::OrphanBesideDirect => world(KILLER_COPIES, NONE),
        Defect::NoLock => world(KILLERS, NONE),
        Defect::LockAfterFetch => world(KILLER_COPIES, NONE),
        Defect::LockEndsWithTheRun => world(KILLER_BESIDE_FAILURE, kill),
        Defect::SharedLockEndsAtTheBegin => world(KILLERS, NONE),
        Defect::ParkedHoldsLock => world(ORDER, Left { kills: 2, ..NONE }).ordered(2).alone(),
        Defect::UnansweredFetchUnlocked => world(KILLER_COPIES, Left { losses: 1, ..NONE }),
        Defect::OutageEndsTheLockOfHandlers => world(KILLER_COPIES, Left { outages: 1, ..NONE }),
        Defect::WaitsForNothing => world(KILLERS, NONE),
        Defect::LostStartNotRefunded => world(STORED, Left { kills: 3, pauses: 1, ..NONE }),
        Defect::UnansweredRefundRepeated => world(KILLS, Left { pauses: 1, losses: 1, ..NONE }),
        Defect::JudgedAtTheEndOfItsLease => world(STORED, Left { kills: 3, pauses: 1, ..NONE }),
        Defect::BreakKeepsStart => world(STORED, Left { kills: 2, losses: 2, ..NONE }),
        Defect::BreaksNotCounted => world(BREAKER, NONE),
        Defect::PruneOfUndatedClaims => world(ONCE, Left { prunes: 1, ..NONE }),
        Defect::PruneBesideConflicts => world(LATE, Left { prunes: 1, ticks: 1, ..NONE }),
        Defect::CutoffAfterTheDelete | Defect::CutoffBeforeTheClaim | Defect::CutoffByOwnRetention => {
            world(COPIES, Left { prunes: 1, ..NONE })
        }
        Defect::CutoffOfTheLast => world(PRUNED, Left { prunes: 2, ticks: 1, ..NONE }),
        Defect::DiscardDatesWithoutDelete => world(FAILS, Left { orders: 2, ..NONE }),
        Defect::NewKeysKeepTheOldKey => world(REKEYED, Left { orders: 1, ..NONE }),
        Defect::ForgetBesideConflicts => world(FAILING_CONFLICT, Left { forgets: 1, ..NONE }),
    }
}

const SINGLE: &[Message] = &[Message::new(0, Handler::Succeeds)];
const COPIES: &[Message] = &[Message::new(0, Handler::Succeeds).copies(2)];
const ONCE: &[Message] = &[Message::new(0, Handler::FailsOnce).copies(2)];
const ONCE_ALONE: &[Message] = &[Message::new(0, Handler::FailsOnce)];
const FAILS: &[Message] = &[Message::new(0, Handler::Fails).copies(2)];
const CONFLICT: &[Message] = &[Message::new(0, Handler::FailsOnce).copies(2), Message::new(0, Handler::Succeeds)];
/// The second one may come again and fail.
const FAILING_CONFLICT: &[Message] =
    &[Message::new(0, Handler::Succeeds), Message::new(0, Handler::FailsOnce).copies(2)];
/// A conflict, and a copy of it whose worker has the handler with the other key.
const REKEYED: &[Message] = &[
    Message::new(0, Handler::Succeeds),
    Message::new(0, Handler::Succeeds).becomes(2),
    Message::new(1, Handler::Succeeds),
];
const FORGOTTEN: &[Message] = &[Message::new(0, Handler::Succeeds).copies(3)];
const ROLLBACK: &[Message] = &[Message::new(0, Handler::RunsRollback).copies(2)];
const COMMIT: &[Message] = &[Message::new(0, Handler::RunsCommit).copies(2)];
const INNOCENT: &[Message] = &[Message::new(0, Handler::Succeeds), Message::new(1, Handler::Succeeds)];
const KILLER: &[Message] = &[Message::new(0, Handler::Succeeds), Message::new(1, Handler::Kills)];
const KILLERS: &[Message] =
    &[Message::stored(0, Handler::Succeeds), Message::new(1, Handler::Kills), Message::new(2, Handler::Kills)];
const KILLER_COPIES: &[Message] = &[Message::stored(0, Handler::Succeeds), Message::new(1, Handler::Kills).copies(4)];
/// An innocent row, and copies of a killer whose worker has another database.
const TWO_DATABASES: &[Message] =
    &[Message::stored(0, Handler::Succeeds), Message::new(1, Handler::Kills).copies(3).database(1)];
const KILLER_BESIDE_FAILURE: &[Message] = &[Message::stored(0, Handler::FailsOnce), Message::stored(1, Handler::Kills)];
const STORED: &[Message] = &[Message::stored(0, Handler::Succeeds)];
const KILLS: &[Message] = &[Message::stored(0, Handler::Kills)];
const BREAKER: &[Message] = &[Message::new(0, Handler::Succeeds), Message::new(1, Handler::Breaks)];
/// The second message is published after the first may have been processed.
const PRUNED: &[Message] =
    &[Message::new(0, Handler::Succeeds), Message::new(1, Handler::Succeeds).copies(2).published(1)];
/// A conflict that is published after the claim of its key.
const LATE: &[Message] =
    &[Message::new(0, Handler::Succeeds), Message::new(0, Handler::Succeeds).copies(2).published(1)];
const LOG: &[Message] = &[Message::new(0, Handler::Succeeds), Message::new(1, Handler::Kills)];
const BEHIND: &[Message] =
    &[Message::new(0, Handler::Succeeds), Message::new(1, Handler::Succeeds), Message::new(2, Handler::Kills)];
const ORDER: &[Message] = &[Message::new(0, Handler::FailsOnce), Message::new(1, Handler::Succeeds)];
