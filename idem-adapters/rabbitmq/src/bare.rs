//! A connection without lapin, for the few frames that lapin does not expose or cannot parse.

mod ask;
mod consumer;
mod cursor;
mod frames;
mod login;
mod message;

pub(crate) use consumer::{BareAcker, Consumer};
pub(crate) use cursor::Cursor;
pub(crate) use login::Bare;
pub(crate) use message::Message;
