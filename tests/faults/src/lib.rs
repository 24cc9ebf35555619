//! What the fault tests share.
//!
//! | file | what |
//! |---|---|
//! | `order` | one handler that does, well or badly, what its message says |
//! | `stage` | what that handler sees of its test, and its test of it |
//! | `world` | a test's own schema, broker and workers |
//! | `journal` | the outcomes that workers tell |
//! | `site` | a queue, stream or topic of a test's own, on any of the brokers |
//! | `mode` | direct, by way of the inbox, or in batches |
//! | `scene` | a world and a site, and what must hold at the end |
//! | `relay` | what stands between a source and its server, and can be cut |
//! | `unacked` | a source whose acks are counted, and do not arrive |
//! | `process` | a worker in a process of its own |
//! | `lines` | how much is logged |
//! | `wait` | waiting with an end |

mod journal;
mod lines;
mod mode;
mod order;
mod process;
mod relay;
mod scene;
mod site;
mod stage;
mod unacked;
mod wait;
mod world;

pub use idem_brokers::Broker;
pub use journal::Journal;
pub use lines::Lines;
pub use mode::Mode;
pub use order::{Act, Order, act};
pub use process::{Process, Setting};
pub use relay::Relay;
pub use scene::{Scene, orders};
pub use site::{InProcess, Real, Site};
pub use stage::{Run, Stage};
pub use unacked::{Asked, Unacked};
pub use wait::{until, within};
pub use world::{Running, Tuned, World, answers, fresh, quick, variable};

/// The brokers with servers, as sites of tests.
pub type RabbitMq = Real<idem_brokers::RabbitMq>;
/// NATS JetStream.
pub type Nats = Real<idem_brokers::Nats>;
/// Apache Kafka.
pub type Kafka = Real<idem_brokers::Kafka>;
