//! The state that all lanes of a worker share. It is independent of how they use it.
//!
//! | file | contents |
//! |---|---|
//! | `pipeline`, `settings` | the shared state, and the settings |
//! | `decode` | the checks before any query |
//! | `prepare` | the preparation of a codec, and whose turn it is |
//! | `ended` | the result of one try of a message, and why it waits for the next one |
//! | `key_queue` | waiters for a key, and the keys of a delivery |
//! | `leases` | the leases of inbox rows, and their extension |
//! | `isolation_lock` | isolates orphaned rows from other work; how long they may wait for that |
//! | `batch_throttle` | the size of batches, and how many run at once |
//! | `running` | the work that runs, and when orphaned rows do not wait for it |
//! | `outage` | the availability of the database |
//! | `persist` | failed statements, repeated and refused writes; delays, and what is done seldom |
//! | `outbox` | watches the outbox to which handlers stage messages |
//! | `health` | the health; what pauses consumption |
//! | `defect` | panics of tasks |
//! | `settle` | acks the delivery, and reports its outcome |

mod batch_throttle;
mod decode;
mod defect;
mod ended;
mod health;
mod isolation_lock;
mod key_queue;
mod leases;
mod outage;
mod outbox;
mod persist;
mod pipeline;
mod prepare;
mod running;
mod settings;
mod settle;

pub use health::Health;
pub use isolation_lock::IsolationLock;

pub(crate) use decode::{limit, recognize};
pub(crate) use ended::{Ended, InRow, Wait};
pub(crate) use isolation_lock::{Direct, Isolated};
pub(crate) use key_queue::{KeyQueue, KeyTicket, KeyTickets};
pub(crate) use outage::within;
pub(crate) use persist::{Refused, busy_wait, growing_waits, jittered, park_delay, refused_wait, warn_of_refusal};
pub(crate) use pipeline::Pipeline;
pub(crate) use prepare::Preparing;
pub(crate) use running::{Permit, Running};
pub(crate) use settings::Settings;
