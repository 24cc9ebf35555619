//! What `#[idempotent]` makes of functions that are right. All of it compiles without a warning, also without those
//! that are off by default.

#![deny(warnings, missing_docs, missing_debug_implementations, missing_copy_implementations)]
#![deny(unreachable_pub, unused_qualifications, single_use_lifetimes, unnameable_types)]
#![warn(clippy::pedantic, clippy::nursery)]
// Few of these handlers have anything to wait for; and whether `pub(crate)` is redundant, clippy and rustc
// (`unreachable_pub`) see differently.
#![allow(clippy::unused_async, clippy::redundant_pub_crate)]

mod attributes;
mod call;
mod hygiene;
mod keys;
mod names;
mod sets;
mod tombstones;
