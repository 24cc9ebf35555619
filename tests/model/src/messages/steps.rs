//! A state of these worlds, and the steps that it permits.

use super::scenario::Scenario;
use super::state::State;
use crate::step;

/// A state of these worlds, and the steps that it permits.
pub(super) type Steps<'a> = step::Steps<'a, Scenario, State>;
