//! The parts of a worker.

use std::sync::Arc;

use crate::registry::Registered;
use crate::runtime::{Health, Settings, SuspectLock};

/// The parts of a worker, with the handlers' types erased.
pub(crate) struct Parts<S, Src> {
    pub(crate) consumer: String,
    pub(crate) store: S,
    pub(crate) source: Src,
    pub(crate) handlers: Vec<Arc<dyn Registered<S>>>,
    pub(crate) settings: Settings,
    pub(crate) health: Health,
    pub(crate) suspect_lock: SuspectLock,
}
