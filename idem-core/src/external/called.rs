//! The answer of a call, as a parameter of the handler.

use std::any::{Any, TypeId};
use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde_json::error::Category;

use crate::store::CallAnswer;
use crate::{BoxError, Extract, Extraction, Param, permanent};

use super::call::{CallError, External, Found};
use super::erased::{CallLimits, CallReply, Calling, ErasedCall};

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
/// without the attribute: with it, the call is made before the handler runs. A handler has at most one of them, or the
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
        let call = from.delivery.rare().call.as_deref();
        let answer = call.and_then(|call| call.answer.as_ref()).map(CallAnswer::as_bytes);
        let answer = answer.ok_or("the call has no answer yet")?;
        let answer = serde_json::from_slice(answer).map_err(|error| unread(C::NAME, &error))?;
        Ok(Self { answer, of: PhantomData })
    }

    fn external() -> Option<ErasedCall<S>> {
        let limits = CallLimits {
            name: C::NAME,
            timeout: C::TIMEOUT,
            key_life: C::KEY_LIFE,
            reconciles: C::RECONCILES,
            ask_after: C::ASK_AFTER,
            writes: C::Params::STAGES,
            takes_key: C::Params::NEEDS_CALL,
        };
        Some(ErasedCall { limits, message: TypeId::of::<M>(), begin: begin::<C, S>, tap: |calling| calling })
    }
}

/// The error of an answer that is not read. It quotes nothing of the answer, which may contain personal data, unlike that of
/// serde_json.
fn unread(name: &str, error: &serde_json::Error) -> BoxError {
    let what = match error.classify() {
        Category::Data => "is of another type",
        _ => "is not JSON",
    };
    let (line, column) = (error.line(), error.column());
    permanent(format!("the stored answer of the call `{name}` {what}, in line {line}, column {column}"))
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
    Ok(Box::pin(async move {
        Ok::<_, CallError>(match asks {
            false => reply(&C::call(&message, params).await?),
            true => match C::reconcile(&message, params).await? {
                Found::There(answer) => reply(&answer),
                Found::NotThere => CallReply::NotThere,
                Found::Unknown => CallReply::Unknown,
            },
        })
    }))
}

fn reply<T: Serialize>(answer: &T) -> CallReply {
    CallReply::Answer(serde_json::to_vec(answer).map(CallAnswer::new))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use uuid::Uuid;

    use super::*;
    use crate::delivery::KeptCall;
    use crate::{Delivery, Key};

    struct Charge;

    impl External for Charge {
        const NAME: &'static str = "charge";
        const KEY_LIFE: Option<Duration> = None;

        type Message = ();
        type Params = ();
        type Answer = u64;

        async fn call((): &(), (): ()) -> Result<u64, CallError> {
            Ok(7)
        }
    }

    #[test]
    fn the_error_of_an_answer_that_is_not_read_quotes_nothing_of_it() {
        for (answer, what) in [("\"4242 4242\"", "another type"), ("4242 secret", "not JSON")] {
            let mut delivery = Delivery::new("orders", "");
            let kept = KeptCall {
                provider_key: Uuid::new_v4(),
                answer: Some(CallAnswer::new(answer)),
                name: None,
                called_at: None,
            };
            delivery.rare_mut().call = Some(Arc::new(kept));
            let key = Key::empty();
            let from = Extraction::new(&delivery, &key, &());
            let error = <CalledBy<Charge> as Extract<()>>::extract(&from).unwrap_err();
            let text = crate::error::text(error.as_ref());
            assert!(text.contains(what) && text.contains("`charge`"), "{text}");
            assert!(!text.contains("4242") && !text.contains("secret"), "{text}");
        }
    }
}
