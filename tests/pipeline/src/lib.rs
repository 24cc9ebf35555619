//! The suite for the pipeline: the guarantees of a worker, over each store, with the in-process broker.
//!
//! Its world is that of the store suite.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod ages;
mod away;
mod backlog;
mod batches;
mod call_crashes;
mod call_doubts;
mod call_failures;
mod call_fan_out;
mod call_keys;
mod call_log;
mod call_mistakes;
mod call_names;
mod call_other_keys;
mod call_records;
mod call_waits;
mod calls;
mod cases;
mod copies;
mod crashes;
mod dead;
mod desk;
mod drain;
mod duplicates;
mod endings;
mod events;
mod every_mode;
mod facts;
mod failures;
mod fan_out;
mod faulty;
mod handing;
mod handlers;
mod handovers;
mod hangs;
mod key_order;
mod kill_switch;
mod line;
mod local;
mod long_outages;
mod mode;
mod natural;
mod neighbours;
mod new_keys;
mod newest;
mod once;
mod options;
mod orders;
mod outbox;
mod panicky;
mod panics;
mod patience;
mod paying;
mod polls;
mod preparations;
mod readiness;
mod redelivered;
mod refusals;
mod replay;
mod roster;
mod routes;
mod running;
mod schemas;
mod settings;
mod spins;
mod staging;
mod starts;
mod together;
mod tombstones;
mod unanswered;
mod unprepared;
mod unrecorded;
mod unregistered;
mod watched;
mod why;

pub use ages::*;
pub use away::*;
pub use backlog::*;
pub use batches::*;
pub use call_crashes::*;
pub use call_doubts::*;
pub use call_failures::*;
pub use call_fan_out::*;
pub use call_keys::*;
pub use call_log::*;
pub use call_mistakes::*;
pub use call_names::*;
pub use call_other_keys::*;
pub use call_records::*;
pub use call_waits::*;
pub use calls::*;
pub use copies::*;
pub use crashes::*;
pub use dead::*;
pub use drain::*;
pub use duplicates::*;
pub use endings::*;
pub use events::*;
pub use facts::*;
pub use failures::*;
pub use fan_out::*;
pub use handovers::*;
pub use hangs::*;
pub use idem_conformance::run;
pub use idem_conformance::store::World;
pub use key_order::*;
pub use kill_switch::*;
pub use local::*;
pub use long_outages::*;
pub use mode::Mode;
pub use natural::*;
pub use neighbours::*;
pub use new_keys::*;
pub use newest::*;
pub use once::*;
pub use options::*;
pub use outbox::*;
pub use panics::*;
pub use patience::*;
pub use polls::*;
pub use preparations::*;
pub use readiness::*;
pub use redelivered::*;
pub use refusals::*;
pub use replay::*;
pub use roster::*;
pub use routes::*;
pub use spins::*;
pub use starts::*;
pub use together::*;
pub use tombstones::*;
pub use unanswered::*;
pub use unprepared::*;
pub use unrecorded::*;
pub use unregistered::*;
pub use why::*;

/// Generates one test per case. Each test awaits `$world`, a future of its world.
#[doc(hidden)]
#[macro_export]
macro_rules! __suite {
    ($world:expr; $($case:ident)*) => {$(
        #[::tokio::test(flavor = "multi_thread")]
        async fn $case() {
            $crate::run($world.await, $crate::$case).await;
        }
    )*};
}
