//! The expansion of `#[idempotent]` on valid functions. All of it compiles without a warning, including those that are
//! off by default.

#![deny(warnings, missing_docs, missing_debug_implementations, missing_copy_implementations)]
#![deny(unreachable_pub, unused_qualifications, single_use_lifetimes, unnameable_types)]
#![warn(clippy::pedantic, clippy::nursery)]
// Few of these handlers await anything; and clippy and rustc (`unreachable_pub`) disagree on whether `pub(crate)` is
// redundant.
#![allow(clippy::unused_async, clippy::redundant_pub_crate)]

mod attributes;
mod batch_handlers;
mod call;
mod external;
mod hygiene;
mod key_parts;
mod keys;
mod names;
mod natural;
mod tombstones;
