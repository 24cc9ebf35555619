//! User code that panics if the message asks for it by the header `panics`.

use idem_core::{BoxError, Codec, DecodeError, Delivery, Extract, Extraction, Json, Param};
use serde::de::DeserializeOwned;

/// Panics if the message asks for it.
pub(super) fn panics(delivery: &Delivery, what: &str) {
    if delivery.headers().get_str("panics") == Some(what) {
        panic!("this {what} panics");
    }
}

/// A parameter whose extraction, or drop, panics if the message asks for it.
#[derive(Default)]
pub(super) struct Extracted {
    _bomb: Option<Bomb>,
}

impl Param for Extracted {}

impl<S> Extract<S> for Extracted {
    fn extract(from: &Extraction<'_, S>) -> Result<Self, BoxError> {
        panics(from.delivery, "extractor");
        let drops = from.delivery.headers().get_str("panics") == Some("drop");
        Ok(Self { _bomb: drops.then(|| Bomb) })
    }
}

/// Reads JSON, and panics if the message asks for it.
pub(super) struct PanickyJson;

impl<M: DeserializeOwned> Codec<M> for PanickyJson {
    fn decode(&self, delivery: &Delivery) -> Result<M, DecodeError> {
        panics(delivery, "codec");
        Json.decode(delivery)
    }
}

/// Panics when dropped, as the guards of some libraries do.
#[derive(Debug)]
pub(super) struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "dropped before its end");
    }
}

/// An error that panics when it is asked for its source, and when dropped.
#[derive(Debug)]
pub(super) struct Nasty(pub(super) Bomb);

impl std::fmt::Display for Nasty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a nasty error")
    }
}

impl std::error::Error for Nasty {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        panic!("{:?} has no source", self.0)
    }
}
