//! A connection without lapin, for the few frames that lapin does not expose or cannot parse.

mod ask;
mod confirms;
mod cursor;
mod frames;
mod login;
mod outstanding;
mod publisher;
mod reader;

pub(crate) use frames::{CHANNEL, body, header, method};
pub(crate) use login::Raw;
pub(crate) use outstanding::{Answer, End};
pub(crate) use publisher::{Encoded, Publisher};
pub(crate) use reader::{Kept, Message, ack, end, nack};
