//! The parts of a relay.

use crate::runtime::Health;

use super::settings::RelaySettings;

/// The parts of a relay.
pub(super) struct Parts<S, K> {
    pub(super) name: String,
    pub(super) store: S,
    pub(super) sink: K,
    pub(super) settings: RelaySettings,
    pub(super) health: Health,
}
