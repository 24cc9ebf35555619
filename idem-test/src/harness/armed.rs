//! A handler that stops where it first waits.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::pin;
use std::task::Poll;

use idem_core::{BoxError, Delivery, Fingerprint, Handler, Key, KeyError, Lends};

use super::crash::Fate;
use super::{Crash, CrashingTxn};

/// The handler `H`, over the store `S`, in a process that may crash while it runs.
pub(super) struct Armed<H, S>(PhantomData<fn() -> (H, S)>);

impl<H: Handler, S: Lends<H::Connection>> Handler for Armed<H, S> {
    const NAME: &'static str = H::NAME;
    const EVENT: Option<&'static str> = H::EVENT;
    const TOMBSTONES: bool = H::TOMBSTONES;
    const NEEDS_POSITION: bool = H::NEEDS_POSITION;
    const NEEDS_PARTITION_KEY: bool = H::NEEDS_PARTITION_KEY;
    const NEEDS_CLOUD_EVENT: bool = H::NEEDS_CLOUD_EVENT;

    type Message = H::Message;
    type Input = H::Input;
    type Params = H::Params;
    type Connection = CrashingTxn<S::Txn>;

    fn key(message: &H::Message, delivery: &Delivery) -> Result<Key, KeyError> {
        H::key(message, delivery)
    }

    fn fingerprint(delivery: &Delivery) -> Fingerprint {
        H::fingerprint(delivery)
    }

    async fn handle(input: H::Input, params: H::Params, tx: &mut CrashingTxn<S::Txn>) -> Result<(), BoxError> {
        let run = H::handle(input, params, S::lend(&mut tx.within));
        if tx.fate.is_at(Crash::InHandler) { cut_off(&tx.fate, run).await } else { run.await }
    }
}

/// Runs to the first wait, and stops there for ever.
async fn cut_off(fate: &Fate, run: impl Future<Output = Result<(), BoxError>> + Send) -> Result<(), BoxError> {
    let mut run = pin!(run);
    let ended = poll_fn(|cx| Poll::Ready(run.as_mut().poll(cx))).await;
    fate.reach(Crash::InHandler).await;
    match ended {
        Poll::Ready(result) => result,
        Poll::Pending => run.await,
    }
}
