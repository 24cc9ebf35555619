//! Guides: from the first program to running a service, and every known limit.

#[doc = include_str!("getting_started.md")]
pub mod getting_started {}

#[doc = include_str!("keys.md")]
pub mod keys {}

#[doc = include_str!("natural.md")]
pub mod natural {}

#[doc = include_str!("external.md")]
pub mod external {}

#[doc = include_str!("external_recovery.md")]
pub mod external_recovery {}

#[doc = include_str!("failures.md")]
pub mod failures {}

#[doc = include_str!("inbox.md")]
pub mod inbox {}

#[doc = include_str!("on_call.md")]
pub mod on_call {}

#[doc = include_str!("ordering.md")]
pub mod ordering {}

#[doc = include_str!("batches.md")]
pub mod batches {}

#[doc = include_str!("outbox.md")]
pub mod outbox {}

// Its code needs axum, and is compiled by the package of examples that has it.
#[cfg_attr(not(doctest), doc = include_str!("requests.md"))]
pub mod requests {}

#[doc = include_str!("data_layer.md")]
pub mod data_layer {}

#[doc = include_str!("testing.md")]
pub mod testing {}

#[doc = include_str!("running.md")]
pub mod running {}

#[doc = include_str!("monitoring.md")]
pub mod monitoring {}

#[doc = include_str!("moving.md")]
pub mod moving {}

#[doc = include_str!("how_it_works.md")]
pub mod how_it_works {}

#[doc = include_str!("limits.md")]
pub mod limits {}
