//! The answer of a call, as a parameter of the handler.

use std::any::{Any, TypeId};
use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;

use crate::store::CallAnswer;
use crate::{BoxError, Extract, Extraction, Param, permanent};

use super::call::External;
use super::erased::{CallLimits, CallReply, Calling, ErasedCall};
use super::error::CallError;
use super::found::Found;

/// The answer of the call that was made for a handler with `#[idempotent(.., call = charge)]`.
///
/// ```
/// # use idem_core::{BoxError, Called};
/// # struct OrderPlaced; struct Charge { id: String } struct PgConnection;
/// async fn order_placed(_: OrderPlaced, Called(charge): Called<Charge>, tx: &mut PgConnection) -> Result<(), BoxError> {
///     // INSERT INTO payments (charge) VALUES ($1), with charge.id
///     # let _ = (charge.id, tx);
///     Ok(())
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
/// // A test calls it with any answer.
/// order_placed(OrderPlaced, Called(Charge { id: "ch_1".to_owned() }), &mut PgConnection).await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Called<T>(pub T);

/// The answer of the call `C`, for the message `M` of the handler, among the [`Params`](crate::Handler::Params) of a handler
/// that is implemented by hand: with it, the call is made before the handler runs. A handler has at most one of them, or the
/// worker refuses to start. `#[idempotent(.., call = ..)]` adds it.
pub struct CalledBy<C: External, M = <C as External>::Message> {
    answer: C::Answer,
    of: PhantomData<fn() -> M>,
}

impl<C: External, M> CalledBy<C, M> {
    /// Returns the answer.
    pub fn into_called(self) -> Called<C::Answer> {
        Called(self.answer)
    }
}

impl<C: External, M> fmt::Debug for CalledBy<C, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CalledBy").field("call", &C::NAME).finish_non_exhaustive()
    }
}

impl<C: External<Message = M>, M: 'static> Param for CalledBy<C, M> {
    const CALLS: usize = 1;
}

impl<S, C, M> Extract<S> for CalledBy<C, M>
where
    C: External<Message = M>,
    C::Params: Extract<S>,
    M: Send + 'static,
{
    /// The error of an answer that the type does not read, such as one of an earlier version, is permanent.
    fn extract(from: &Extraction<'_, S>) -> Result<Self, BoxError> {
        let answer = from.delivery.call.as_deref().and_then(|call| call.answer.as_ref()).map(CallAnswer::as_bytes);
        let answer = answer.ok_or("the call has no answer yet")?;
        let unread = |error| permanent(format!("the stored answer of the call `{}` is not read: {error}", C::NAME));
        Ok(Self { answer: serde_json::from_slice(answer).map_err(unread)?, of: PhantomData })
    }

    fn external() -> Option<ErasedCall<S>> {
        let limits = CallLimits {
            name: C::NAME,
            timeout: C::TIMEOUT,
            key_life: C::KEY_LIFE,
            reconciles: C::RECONCILES,
            ask_after: C::ASK_AFTER,
            writes: C::Params::STAGES || C::Params::ADVANCES,
            takes_key: C::Params::NEEDS_CALL,
        };
        Some(ErasedCall { limits, message: TypeId::of::<M>(), begin: begin::<C, S> })
    }
}

/// Begins a call of `C`, or asks what became of it.
fn begin<C: External, S>(
    message: Box<dyn Any + Send>,
    from: &Extraction<'_, S>,
    asks: bool,
) -> Result<Calling, BoxError>
where
    C::Params: Extract<S>,
{
    let message = message.downcast::<C::Message>().map_err(|_| "the call takes another message than its handler")?;
    let params = C::Params::extract(from)?;
    let calling: Calling = match asks {
        true => Box::pin(ask::<C>(message, params)),
        false => Box::pin(call::<C>(message, params)),
    };
    Ok(calling)
}

async fn call<C: External>(message: Box<C::Message>, params: C::Params) -> Result<CallReply, CallError> {
    Ok(reply(&C::call(&message, params).await?))
}

async fn ask<C: External>(message: Box<C::Message>, params: C::Params) -> Result<CallReply, CallError> {
    Ok(match C::reconcile(&message, params).await? {
        Found::There(answer) => reply(&answer),
        Found::NotThere => CallReply::NotThere,
        Found::Unknown => CallReply::Unknown,
    })
}

fn reply<T: Serialize>(answer: &T) -> CallReply {
    CallReply::Answer(serde_json::to_vec(answer).map(CallAnswer::new))
}
