//! The handlers of a tapped store.

use std::marker::PhantomData;

use idem_core::{BoxError, Delivery, Fingerprint, Handler, HasConnection, Key, KeyError};

use super::through::Through;
use super::{StoreTap, TappedTxn};

/// The handler `H` of the store `S`, for that store with the tap `T`.
#[derive(Debug)]
pub struct Over<H, S, T>(PhantomData<(H, S, T)>);

impl<H: Handler, S: HasConnection<H::Connection>, T: StoreTap> Handler for Over<H, S, T> {
    const NAME: &'static str = H::NAME;
    const FORMERLY: &'static [&'static str] = H::FORMERLY;
    const RECIPE: &'static str = H::RECIPE;
    const EVENT: Option<&'static str> = H::EVENT;
    const TOMBSTONES: bool = H::TOMBSTONES;
    const NATURAL: bool = H::NATURAL;
    const NEEDS_POSITION: bool = H::NEEDS_POSITION;
    const NEEDS_PARTITION_KEY: bool = H::NEEDS_PARTITION_KEY;
    const NEEDS_CLOUD_EVENT: bool = H::NEEDS_CLOUD_EVENT;

    type Message = H::Message;
    type Input = H::Input;
    type Params = Through<H::Params, T>;
    type Connection = TappedTxn<S::Lent, T>;

    fn key(message: &H::Message, delivery: &Delivery) -> Result<Key, KeyError> {
        H::key(message, delivery)
    }

    fn fingerprint(delivery: &Delivery) -> Fingerprint {
        H::fingerprint(delivery)
    }

    async fn handle(input: H::Input, params: Self::Params, tx: &mut TappedTxn<S::Lent, T>) -> Result<(), BoxError> {
        let TappedTxn { within, tap, .. } = tx;
        tap.handle(H::NAME, H::handle(input, params.into_params(), S::connection(within))).await
    }
}
