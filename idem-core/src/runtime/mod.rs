//! The state that all lanes of a worker share. It is independent of how they use it.

mod brake;
mod count;
mod decode;
mod defect;
mod extend;
mod extend_rows;
mod gate;
mod health;
mod hold;
mod key_queue;
mod leases;
mod outage;
mod pace;
mod persist;
mod pipeline;
mod preparations;
mod prepare;
mod queue;
mod refusals;
mod refused;
mod rows;
mod settings;
mod settle;
mod step;
mod waits;

pub use gate::SuspectLock;
pub use health::Health;

pub(crate) use brake::Brake;
pub(crate) use defect::{Defect, Unwinding};
pub(crate) use extend::{at, extended, extended_all, kept};
pub(crate) use gate::Isolated;
pub(crate) use key_queue::{KeyQueue, Place};
pub(crate) use leases::Leases;
pub(crate) use outage::Outage;
pub(crate) use pace::BatchThrottle;
pub(crate) use pipeline::Pipeline;
pub(crate) use preparations::{Preparations, WantedPreparation};
pub(crate) use queue::Queue;
pub(crate) use refusals::{Refusals, RowPreparation};
pub(crate) use refused::{Held, UNANSWERED, unanswered, warn_of_refusal};
pub(crate) use rows::Rows;
pub(crate) use settings::Settings;
pub(crate) use step::{Arrival, HoldReason, Progress};
pub(crate) use waits::{hold_wait, jittered, refused_wait};
