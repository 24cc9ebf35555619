//! What the fault tests share.
//!
//! | file | what |
//! |---|---|
//! | `order` | one handler that does, well or badly, what its message says |
//! | `stage` | what that handler sees of its test, and its test of it |
//! | `world` | a test's own schema, broker and workers |
//! | `journal` | the outcomes that workers tell |
//! | `rabbit` | a RabbitMQ queue of a test's own |
//! | `lines` | how much is logged |
//! | `wait` | waiting with an end |

mod journal;
mod lines;
mod order;
mod rabbit;
mod stage;
mod wait;
mod world;

pub use journal::Journal;
pub use lines::Lines;
pub use order::{Act, Order, act};
pub use rabbit::Rabbit;
pub use stage::{Run, Stage};
pub use wait::{until, within};
pub use world::{Running, Tuned, World, answers, fresh, quick, variable};
