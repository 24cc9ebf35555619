//! The relay, which publishes the messages of an outbox.
//!
//! | file | contents |
//! |---|---|
//! | `builder` | the builder and its options |
//! | `run` | the lifecycle: open, stand by, publish, drain; gauges |
//! | `tenure` | an active relay, which has the lease of the outbox: one task, its state, its statements |
//! | `answers` | the answers to its statements |
//! | `publish` | a call of the sink, and what its answer means |
//! | `reads` | which read is next, and what becomes of its messages |
//! | `low_water` | the low-water mark, from which reads begin |
//! | `queue` | the messages in memory, and the small queue of each key |
//! | `circuit` | circuit breakers of destinations; a broker that is away |

mod answers;
mod builder;
mod circuit;
mod low_water;
mod publish;
mod queue;
mod reads;
mod run;
mod tenure;

pub use builder::Relay;
