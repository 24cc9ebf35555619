//! Codecs, which decode payloads: `Worker::codec` takes one.

#[cfg(feature = "protobuf")]
pub use idem_core::Protobuf;
pub use idem_core::{Codec, DecodeError, Json, PrepareError};
