//! A state of these worlds, and the steps that it permits.

use super::state::State;
use super::world::World;
use crate::step;

/// A state of these worlds, and the steps that it permits.
pub(super) type Steps<'a> = step::Steps<'a, World, State>;
