//! A connection without lapin, for the few frames that lapin does not expose or cannot parse.

mod ask;
mod confirms;
mod consumer;
mod cursor;
mod end;
mod frames;
mod login;
mod message;
mod outstanding;
mod publisher;
mod writes;

pub(crate) use consumer::{BareAcker, CHANNEL, Consumer};
pub(crate) use cursor::Cursor;
pub(crate) use end::End;
pub(crate) use frames::{body, header, method};
pub(crate) use login::Bare;
pub(crate) use message::Message;
pub(crate) use outstanding::Answer;
pub(crate) use publisher::{Encoded, Publisher};
