//! The parts that the fault tests share.
//!
//! | file | contents |
//! |---|---|
//! | `order` | one handler that does what its message says |
//! | `stage` | the state that this handler shares with its test |
//! | `world` | a separate schema, broker and workers per test |
//! | `journal` | the outcomes that workers report |
//! | `site` | a separate queue, stream or topic per test, on any of the brokers |
//! | `mode` | direct, from the inbox, or in batches |
//! | `scene` | a world and a site, and the checks at the end |
//! | `relay` | a relay between a source and its server, which can be cut |
//! | `unacked` | a source whose acks are counted and withheld |
//! | `process` | a worker in a separate process |
//! | `lines` | counts log lines |
//! | `panics` | says at once why a test failed |
//! | `threads` | long runs that begin together |
//! | `wait` | waiting with a limit |
//! | `witness` | a source that looks into the database at each ack |

mod journal;
mod lines;
mod mode;
mod order;
mod panics;
mod process;
mod relay;
mod scene;
mod site;
mod stage;
mod threads;
mod unacked;
mod wait;
mod witness;
mod world;

pub use idem_brokers::{Broker, Kafka, Nats, RabbitMq, Sqs};
pub use idem_conformance::server as variable;
pub use journal::Journal;
pub use lines::Lines;
pub use mode::Mode;
pub use order::{Act, Order, act};
pub use process::{Process, Setting};
pub use relay::Relay;
pub use scene::{Scene, orders};
pub use site::Site;
pub use stage::{Run, Stage};
pub use threads::Threads;
pub use unacked::{Asked, Unacked};
pub use wait::{until, within};
pub use witness::{Seen, Witness, Witnessed};
pub use world::{Running, Traced, Tuned, World, answers, fresh, number, quick};
