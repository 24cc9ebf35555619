//! The trait that `#[external]` implements, what another system knows of a call, and how a call failed.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{BoxError, Param};

/// A call to another system, such as a payment provider. `#[external]` implements it for an empty struct with the function's
/// name; a handler makes the call with `#[idempotent(.., call = charge)]`.
///
/// The call runs before the handler, with no transaction and no connection. With a [`KEY_LIFE`](Self::KEY_LIFE) it runs at least
/// once, under the same [`OutboundKey`](crate::OutboundKey). Without one, a call in doubt is not repeated before
/// [`reconcile`](Self::reconcile) has said that it was not there.
///
/// The answer is committed before the handler runs, which gets it as [`Called`](crate::Called), in the transaction of the claim.
/// A call that got no answer is repeated while the provider remembers the key; after that the provider is asked what became of
/// it. If that cannot be known, the message is a dead letter, `unresolved`: it is never guessed.
///
/// The future is dropped at the timeout and at the shutdown timeout. Like an error, a panic and the end of the process, that
/// leaves the effect in doubt.
///
/// ```
/// # use std::time::Duration;
/// # use idem_core::{BoxError, CallError, External, Found, OutboundKey, State};
/// # #[derive(Clone)] struct Bank;
/// # impl Bank {
/// #     async fn charge(&self, _: i64, _: &str) -> Result<String, BoxError> { Ok("ch_1".to_owned()) }
/// #     async fn find(&self, _: &str) -> Result<Option<String>, BoxError> { Ok(None) }
/// # }
/// struct Order { cents: i64 }
/// struct Charge;
///
/// impl External for Charge {
///     const NAME: &'static str = "charge";
///     const KEY_LIFE: Option<Duration> = Some(Duration::from_secs(24 * 3600));
///     const RECONCILES: bool = true;
///     type Message = Order;
///     type Params = (OutboundKey, State<Bank>);
///     type Answer = String;
///
///     async fn call(order: &Order, (key, State(bank)): Self::Params) -> Result<String, CallError> {
///         Ok(bank.charge(order.cents, &key.to_string()).await?)
///     }
///
///     async fn reconcile(_: &Order, (key, State(bank)): Self::Params) -> Result<Found<String>, BoxError> {
///         Ok(bank.find(&key.to_string()).await?.map_or(Found::NotThere, Found::There))
///     }
/// }
/// ```
pub trait External: Send + Sync + 'static {
    /// Its name, for the log. It is stored with each call that begins. A call of another name never goes on with one that may
    /// have had an effect: that message is a dead letter, `unresolved`, or, if it has the answer already, `permanent`. So keep
    /// the name if the type is renamed. It must not end in ` (at most once)`. A call that gets a [`KEY_LIFE`](Self::KEY_LIFE), or
    /// loses it, does not go on either with one in doubt.
    const NAME: &'static str;

    /// How long the provider remembers a key, from its first use. Less a tenth, a call may be repeated under it. `None`: the
    /// provider knows no keys, and a call that was begun is never repeated by itself.
    const KEY_LIFE: Option<Duration>;

    /// How long one call, or one question what became of it, may take; 20 seconds by default.
    const TIMEOUT: Duration = Duration::from_secs(20);

    /// Whether [`reconcile`](Self::reconcile) can be asked.
    const RECONCILES: bool = false;

    /// The provider is asked at the earliest this long after the last call under the key can have begun; two minutes by
    /// default. A network, a proxy or the provider's own queue can delay a request for longer than its client waits,
    /// and a list can lag behind: an answer [`Found::NotThere`](crate::Found::NotThere) that comes too early permits a
    /// second effect.
    const ASK_AFTER: Duration = Duration::from_secs(120);

    /// The message of the handler.
    type Message: Send + Sync + 'static;

    /// The parameters besides the message: `()`, or a tuple of extractors. With a [`KEY_LIFE`](Self::KEY_LIFE), one of
    /// them has to be the [`OutboundKey`](crate::OutboundKey), or a type of your own that extracts it and sets
    /// [`Param::NEEDS_CALL`]: a call that sends no key would be charged again when it is repeated, so a worker with
    /// such a call refuses to start.
    type Params: Param;

    /// The answer. It is stored as JSON.
    type Answer: Serialize + DeserializeOwned + Send + 'static;

    /// Makes the call.
    ///
    /// # Errors
    /// [`CallError::not_done`]: it certainly had no effect. [`CallError::permanent`]: no further call under this key can
    /// succeed; the message is a dead letter. Any other error leaves the effect in doubt. Each counts as an attempt.
    fn call(
        message: &Self::Message,
        params: Self::Params,
    ) -> impl Future<Output = Result<Self::Answer, CallError>> + Send;

    /// Asks the provider what became of the calls under this key. It must not change anything.
    ///
    /// # Errors
    /// The provider could not be asked: it is asked again later. After the last attempt, the message is a dead letter,
    /// `unresolved`.
    fn reconcile(
        _message: &Self::Message,
        _params: Self::Params,
    ) -> impl Future<Output = Result<Found<Self::Answer>, BoxError>> + Send {
        async { Ok(Found::Unknown) }
    }
}

/// What another system knows of the calls under a key.
///
/// ```
/// # use idem_core::Found;
/// /// A provider that lists its charges.
/// fn found(charges: &[&str]) -> Found<String> {
///     match charges {
///         [] => Found::NotThere,
///         [one] => Found::There((*one).to_owned()),
///         // Somebody has to look.
///         _ => Found::Unknown,
///     }
/// }
/// assert_eq!(found(&[]), Found::NotThere);
/// ```
// Exhaustive: the function that returns it decides between these, and nothing else follows from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found<T> {
    /// A call had an effect, and this is its answer. The handler completes with it.
    There(T),
    /// No call had an effect, and none that was sent can still have one: the call is made again, under the same key.
    NotThere,
    /// It cannot be known. The message is a dead letter, `unresolved`.
    Unknown,
}

/// Why a call has no answer. Any error becomes one by `?`, and then leaves it in doubt whether the call had an effect: the
/// request may have arrived, although its answer did not. [`permanent`](crate::permanent) and
/// [`retry_after`](crate::retry_after) keep their meaning.
///
/// ```
/// # use idem_core::{BoxError, CallError};
/// # struct Answer { status: u16, body: String }
/// # async fn post() -> Result<Answer, std::io::Error> { Ok(Answer { status: 200, body: String::new() }) }
/// async fn charge() -> Result<String, CallError> {
///     let answer = post().await?;
///     match answer.status {
///         // Certainly without effect: it is tried again, and nothing is in doubt.
///         429 => Err(CallError::not_done("busy")),
///         // A request with this key is in progress, for example one that the client has repeated: it may have an effect.
///         409 => Err("in progress".into()),
///         // The provider has stored this answer for the key.
///         400..500 => Err(CallError::permanent(format!("refused: {}", answer.body))),
///         200 => Ok(answer.body),
///         other => Err(format!("the status {other}").into()),
///     }
/// }
/// # let _ = charge();
/// ```
#[derive(Debug)]
pub struct CallError {
    doubt: Doubt,
    error: BoxError,
}

/// What is known about the effect of a call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// The call may have had an effect.
    Unknown,
    /// The call certainly had no effect.
    NotDone,
    /// The call may have had an effect, and no further call under the key can succeed.
    Permanent,
}

impl CallError {
    /// The call certainly had no effect, and can be tried again: the provider was busy, or the request never left, also not in a
    /// first try of a client that repeats requests by itself. If it is the first call under its key, no call counts as begun.
    pub fn not_done(error: impl Into<BoxError>) -> Self {
        Self { doubt: Doubt::NotDone, error: error.into() }
    }

    /// No further call under this key can succeed, for example because the provider has stored an error for it. The
    /// message is a dead letter, `permanent`. After a search at the provider, [`Operator::resolve`](crate::operator::Operator::resolve)
    /// gives it an answer or another key.
    pub fn permanent(error: impl Into<BoxError>) -> Self {
        Self { doubt: Doubt::Permanent, error: error.into() }
    }

    pub(crate) fn into_parts(self) -> (Doubt, BoxError) {
        (self.doubt, self.error)
    }
}

impl<E: Into<BoxError>> From<E> for CallError {
    fn from(error: E) -> Self {
        Self { doubt: Doubt::Unknown, error: error.into() }
    }
}
