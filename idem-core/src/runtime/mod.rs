//! The state that all lanes of a worker share. It is independent of how they use it.
//!
//! | file | contents |
//! |---|---|
//! | `pipeline`, `settings` | the shared state, and the settings |
//! | `decode`, `prepare` | the checks before any query; the preparation of a codec, and whose turn it is |
//! | `ended` | the result of one try of a message, and why it waits for the next one |
//! | `key_queue`, `rows` | waiters for a key, and the keys of a delivery; waiters for an inbox row |
//! | `leased` | when a delivery's lease has to be extended, and the extension |
//! | `leases` | the same for inbox rows |
//! | `suspect_lock` | isolates suspects from other work; how long they may wait for that |
//! | `batch_throttle` | the size of batches, and how many run at once |
//! | `running` | the work that runs, and when suspects do not wait for it |
//! | `outage` | the availability of the database |
//! | `persist`, `waits` | failed statements, repeated and refused writes; delays, and what is done seldom |
//! | `outbox_gate` | the outbox to which handlers stage messages |
//! | `brake`, `health` | pauses consumption; the health |
//! | `defect` | panics of tasks |
//! | `settle` | acks the delivery, and reports its outcome |

mod batch_throttle;
mod brake;
mod decode;
mod defect;
mod ended;
mod health;
mod key_queue;
mod leased;
mod leases;
mod outage;
mod outbox_gate;
mod persist;
mod pipeline;
mod prepare;
mod rows;
mod running;
mod settings;
mod settle;
mod suspect_lock;
mod waits;

pub use health::Health;
pub use suspect_lock::SuspectLock;

pub(crate) use batch_throttle::BatchThrottle;
pub(crate) use brake::Brake;
pub(crate) use defect::Defect;
pub(crate) use ended::{Ended, InRow, Wait};
pub(crate) use key_queue::{KeyQueue, KeyTicket, KeyTickets};
pub(crate) use leased::{LOOKS, LeasedAcker, at, extend_all, extended, kept};
pub(crate) use leases::Leases;
pub(crate) use outage::{Outage, within};
pub(crate) use outbox_gate::OutboxGate;
pub(crate) use persist::{Refused, refused, warn_of_refusal};
pub(crate) use pipeline::Pipeline;
pub(crate) use prepare::{Preparations, Preparing};
pub(crate) use rows::Rows;
pub(crate) use running::{Permit, Running};
pub(crate) use settings::Settings;
pub(crate) use suspect_lock::Isolated;
pub(crate) use waits::{Rate, busy_wait, growing_waits, hold_wait, jittered, refused_wait};
