//! An external call whose steps are written into a trace.

use std::marker::PhantomData;
use std::time::Duration;

use idem_core::{BoxError, CallError, External, Found};

use crate::trace::CallOf;

/// The call `C`, whose steps are written into the trace of the process that makes it, if that belongs to a
/// [`Trial`](super::Trial) with a trace. A handler names it in place of `C`.
#[derive(Debug)]
pub struct TracedCall<C>(PhantomData<fn() -> C>);

impl<C: External> External for TracedCall<C> {
    const NAME: &'static str = C::NAME;
    const KEY_LIFE: Option<Duration> = C::KEY_LIFE;
    const TIMEOUT: Duration = C::TIMEOUT;
    const RECONCILES: bool = C::RECONCILES;
    const ASK_AFTER: Duration = C::ASK_AFTER;

    type Message = C::Message;
    type Params = (C::Params, CallOf);
    type Answer = C::Answer;

    async fn call(message: &C::Message, (params, of): Self::Params) -> Result<C::Answer, CallError> {
        let sent = of.sends(C::KEY_LIFE.is_some(), C::RECONCILES).await;
        let answer = C::call(message, params).await;
        if answer.is_ok() {
            sent.ends_as("answered");
        }
        answer
    }

    async fn reconcile(message: &C::Message, (params, of): Self::Params) -> Result<Found<C::Answer>, BoxError> {
        let asked = of.asks().await;
        let found = C::reconcile(message, params).await;
        asked.replied(match &found {
            Ok(Found::There(_)) => "there",
            Ok(Found::NotThere) => "not-there",
            Ok(Found::Unknown) | Err(_) => "unknown",
        });
        found
    }
}
