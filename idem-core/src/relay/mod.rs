//! The relay, which publishes the messages of an outbox.
//!
//! | file | contents |
//! |---|---|
//! | `builder` | the builder and its options |
//! | `run` | the lifecycle: open, stand by, publish, drain |
//! | `lease` | the lease of an outbox: one relay at a time is active |
//! | `tenure` | an active relay: one task, its state, its statements |
//! | `answers` | the answers to its statements |
//! | `publish` | a call of the sink, and what its answer means |
//! | `reads` | which read is next, and what becomes of its messages |
//! | `floor` | the low-water mark, from which reads begin |
//! | `queue` | the messages in memory, and the small queue of each key |
//! | `circuit` | circuit breakers of destinations; a broker that is away |
//! | `watch` | gauges, and outboxes that no relay looks at |
//! | `operator` | dead letters, for an operator |

mod answers;
mod builder;
mod circuit;
mod floor;
mod lease;
mod operator;
mod publish;
mod queue;
mod reads;
mod run;
mod tenure;
mod watch;

pub use builder::Relay;
