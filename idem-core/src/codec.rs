//! Decoding of deliveries into messages.

mod decode;
mod error;
mod found;
mod json;
#[cfg(feature = "protobuf")]
mod protobuf;

pub use decode::Codec;
pub use error::{DecodeError, PrepareError};
pub use json::Json;
#[cfg(feature = "protobuf")]
pub use protobuf::Protobuf;

pub(crate) use error::preparing;
pub(crate) use found::without_mark;
