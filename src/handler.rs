//! Handlers without the attribute, and the types that a worker with handlers is made of.

pub use idem_core::{Handler, Input, KeyError, MAX_KEY, NoHandlers, WithHandlers};
