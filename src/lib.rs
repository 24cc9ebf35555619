//! idem: at-least-once delivery, effect once in your database.

pub use idem_core::*;
pub use idem_macros::*;

#[cfg(feature = "rabbitmq")]
pub use idem_rabbitmq::*;
