//! CloudEvents.

mod binary;
mod event;
mod read;
mod structured;
#[cfg(test)]
mod tests;

pub use event::CloudEvent;

pub(crate) use read::read;
