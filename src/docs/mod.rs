//! Guides: how to choose a key, what happens to a message that fails, batches, and every known limit.

#[doc = include_str!("keys.md")]
pub mod keys {}

#[doc = include_str!("failures.md")]
pub mod failures {}

#[doc = include_str!("batches.md")]
pub mod batches {}

#[doc = include_str!("limits.md")]
pub mod limits {}
