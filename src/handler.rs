//! Handlers without the attribute, and the types that a worker with handlers is made of.

pub use idem_core::{
    Handler, HandlerCodec, HandlerOptions, Input, KeyError, MAX_KEY, NoHandlers, OwnCodec, WithHandlers, WorkerCodec,
};
