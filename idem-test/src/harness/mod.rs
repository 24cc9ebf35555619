//! The harness for users: runs a handler under every kind of delivery and crash.
//!
#![cfg_attr(feature = "sqlite", doc = "```")]
#![cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
//! # use idem_core::{BoxError, Delivery, Handler, Key, KeyError, State};
//! # use idem_test::{Crash, Trial};
//! # use sqlx::SqliteConnection;
//! # #[derive(serde::Serialize, serde::Deserialize)] struct OrderPaid { event_id: String, cents: i64 }
//! # #[derive(Clone)] struct Rate(i64);
//! # #[allow(non_camel_case_types)] struct order_paid;
//! # impl Handler for order_paid {
//! #     const NAME: &'static str = "order_paid";
//! #     type Message = OrderPaid;
//! #     type Input = OrderPaid;
//! #     type Params = (State<Rate>,);
//! #     type Connection = SqliteConnection;
//! #     fn key(paid: &OrderPaid, _: &Delivery) -> Result<Key, KeyError> { Key::of(&paid.event_id) }
//! #     async fn handle(paid: OrderPaid, (State(rate),): Self::Params, tx: &mut SqliteConnection) -> Result<(), BoxError> {
//! #         let add = sqlx::query("UPDATE account SET balance = balance + ?").bind(paid.cents * rate.0);
//! #         add.execute(tx).await.map(drop).map_err(Into::into)
//! #     }
//! # }
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
//! let bench = Trial::sqlite().tables("CREATE TABLE account (balance INTEGER); INSERT INTO account VALUES (0)");
//! let trial = bench.state(Rate(1)).inbox().handler::<order_paid>().await?;
//! let order = |number: u32| OrderPaid { event_id: format!("order-{number}"), cents: 2500 };
//! let balance = async || trial.number("SELECT balance FROM account").await;
//!
//! // Two processes, and one of them is killed after its commit: one of the three copies is processed.
//! let sending = trial.deliver_json(&order(100))?.processes(2).crash(Crash::AfterCommit);
//! let outcomes = sending.times(3).await?;
//! assert_eq!(balance().await?, 2500, "{outcomes:?}");
//!
//! // The same for every number of copies, and a crash at every point.
//! trial.has_one_effect(order, balance).await?;
//! # Ok(()) }
//! ```

// | files | contents |
// |---|---|
// | `bench`, `trial` | a trial that has no handler yet, and one that has |
// | `sending`, `tables` | one message and how it is delivered; the queries of a test |
// | `connect`, `fresh_file`, `fresh_schema`, `cleanup` | the database of a trial, and its removal |
// | `subject`, `facts`, `locals`, `shared_codec` | the handlers of a trial, and the codec that their workers share |
// | `launch`, `relay` | a process: its worker, and the relay beside it |
// | `process`, `process_thread` | how it dies: with its runtime, or on one thread |
// | `crash`, `crash_plan`, `polls`, `store`, `source` | where a process dies, and the store and the source that stop there |
// | `one_effect`, `natural`, `crash_everywhere` | the proofs `has_one_effect`, `is_natural` and `crash_everywhere` |
// | `request_crashes` | requests to a service whose process dies |
// | `staged` | the messages that a natural handler stages, which have to be the same |
// | `runs`, `search`, `phase`, `leases`, `crash_report` | the runs of `crash_everywhere`, and its report |
// | `digest`, `elsewhere`, `observed` | the effects that it compares: in tables, and outside; the judgement |
// | `traced`, `traced_call`, `traced_sink` | for a trace: a worker outside of a trial, a call, a sink |

mod bench;
mod cleanup;
mod connect;
mod crash;
mod crash_everywhere;
mod crash_plan;
mod crash_report;
mod digest;
mod elsewhere;
mod facts;
#[cfg(feature = "sqlite")]
mod fresh_file;
#[cfg(feature = "postgres")]
mod fresh_schema;
mod launch;
mod leases;
mod locals;
mod natural;
mod observed;
mod one_effect;
mod phase;
mod polls;
mod process;
mod process_thread;
mod relay;
#[cfg(feature = "http")]
mod request_crashes;
mod runs;
mod search;
mod sending;
mod shared_codec;
mod source;
mod staged;
mod store;
mod subject;
mod tables;
mod traced;
mod traced_call;
mod traced_sink;
mod trial;

pub use bench::Bench;
pub use crash::Crash;
pub use crash_report::CrashReport;
pub use digest::{Change, Digest};
#[cfg(feature = "sqlite")]
pub use fresh_file::FreshFile;
#[cfg(feature = "postgres")]
pub use fresh_schema::FreshSchema;
pub use one_effect::ToPublication;
pub use phase::Phase;
#[cfg(feature = "http")]
pub use request_crashes::{ServiceTrial, requests_of};
pub use sending::Sending;
#[doc(hidden)]
pub use traced::{TracedHandler, TracedProcess, TracedSink, TracedSource, TracedStore};
#[doc(hidden)]
pub use traced_call::TracedCall;
pub use trial::Trial;
