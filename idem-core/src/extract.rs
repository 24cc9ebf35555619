//! The parameters of a handler besides the message and the connection.

use std::cell::OnceCell;

use bytes::Bytes;

use crate::external::ErasedCall;
use crate::outbox::Outbox;
use crate::{BoxError, CloudEvent, Delivery, Headers, Key, permanent};

/// A type that a handler may have as a parameter. `.handler::<..>()` checks that the worker can provide it. A type of
/// your own implements it together with [`Extract`], which has an example.
#[diagnostic::on_unimplemented(
    message = "a handler cannot take `{Self}`",
    label = "not an extractor",
    note = "the first parameter is the message, the one `&mut` is the connection, and the others are extractors: \
            `State<T>`, `Headers`, `Subject`, `PartitionKey`, `CloudEvent`, `Delivery`, \
            `IdempotencyKey`, `Outbox`; with `call = ..` also `Called<T>` and `OutboundKey`"
)]
pub trait Param: Send + 'static {
    /// Whether it stages messages. If so, a worker with such a handler needs an outbox.
    const STAGES: bool = false;

    /// Whether it is about the external call of a handler. If so, it is refused in a handler that makes none. A type of your
    /// own that extracts an [`OutboundKey`](crate::OutboundKey) sets it to `true`.
    const NEEDS_CALL: bool = false;

    /// How many external calls are made for it before the handler runs. A handler makes at most one, so a worker refuses one
    /// whose parameters have more.
    const CALLS: usize = 0;
}

/// Extracts a parameter from a delivery and the worker's state, before the transaction begins.
///
/// An error counts as a failure of the handler: the delivery is scheduled for a retry.
///
/// ```
/// # use idem_core::{BoxError, Extract, Extraction, Param, permanent};
/// /// The tenant of an order, from a header that every producer sets.
/// struct Tenant(String);
///
/// impl Param for Tenant {}
///
/// impl<S> Extract<S> for Tenant {
///     fn extract(from: &Extraction<'_, S>) -> Result<Self, BoxError> {
///         let tenant = from.delivery.headers().get_str("tenant");
///         tenant.map(|tenant| Self(tenant.to_owned())).ok_or_else(|| permanent("there is no header `tenant`"))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "this worker cannot provide `{Self}` to a handler",
    note = "its state is `{S}`; give another with `.state(..)`, or implement `FromRef<{S}>` for the part that is taken"
)]
pub trait Extract<S>: Param + Sized {
    /// Extracts the parameter.
    ///
    /// # Errors
    /// The parameter is missing; the text becomes the error of the attempt.
    fn extract(from: &Extraction<'_, S>) -> Result<Self, BoxError>;

    /// Returns the external call that is made before the handler runs, if this is the parameter that has its answer.
    #[doc(hidden)]
    fn external() -> Option<ErasedCall<S>> {
        None
    }
}

/// The input of an extractor, see [`Extract`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Extraction<'a, S> {
    /// The current delivery.
    pub delivery: &'a Delivery,
    /// The key of the delivery.
    pub key: &'a Key,
    /// The state of the worker.
    pub state: &'a S,
    /// The outbox of this run, made when it is first extracted.
    pub(crate) outbox: OnceCell<Outbox>,
}

impl<'a, S> Extraction<'a, S> {
    pub(crate) fn new(delivery: &'a Delivery, key: &'a Key, state: &'a S) -> Self {
        Self { delivery, key, state, outbox: OnceCell::new() }
    }
}

/// The state of the worker, or a part of it that [`FromRef`] provides. It is cloned for each delivery: put an `Arc`
/// inside.
///
/// ```
/// # use std::sync::Arc;
/// # use idem_core::{BoxError, FromRef, State};
/// # struct Mail; struct OrderPaid; struct PgConnection;
/// #[derive(Clone)]
/// struct App { mail: Arc<Mail> }
///
/// impl FromRef<App> for Arc<Mail> {
///     fn from_ref(app: &App) -> Self { Arc::clone(&app.mail) }
/// }
///
/// // A handler of a worker with `.state(App { .. })`.
/// async fn order_paid(paid: OrderPaid, State(mail): State<Arc<Mail>>, tx: &mut PgConnection) -> Result<(), BoxError> {
///     # let _ = (paid, mail, tx);
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct State<T>(pub T);

/// Provides a part of a worker's state. Every state provides itself. [`State`] has an example.
#[diagnostic::on_unimplemented(
    message = "a handler takes `State<{Self}>`, which the worker's state `{S}` does not give",
    note = "give the worker its state before its handlers, with `.state(..)`, or implement `FromRef<{S}>` for `{Self}`"
)]
pub trait FromRef<S> {
    /// Returns the part.
    fn from_ref(state: &S) -> Self;
}

impl<S: Clone> FromRef<S> for S {
    fn from_ref(state: &S) -> Self {
        state.clone()
    }
}

impl<T: Send + 'static> Param for State<T> {}
impl<S, T: FromRef<S> + Send + 'static> Extract<S> for State<T> {
    fn extract(from: &Extraction<'_, S>) -> Result<Self, BoxError> {
        Ok(Self(T::from_ref(from.state)))
    }
}

impl Param for Headers {}
impl<S> Extract<S> for Headers {
    fn extract(from: &Extraction<'_, S>) -> Result<Self, BoxError> {
        Ok(from.delivery.headers().clone())
    }
}

impl Param for Delivery {}
impl<S> Extract<S> for Delivery {
    fn extract(from: &Extraction<'_, S>) -> Result<Self, BoxError> {
        Ok(from.delivery.clone())
    }
}

/// The subject that the message was published to: the subject of NATS, the routing key of AMQP; `None` on Kafka and SQS.
///
/// ```
/// # use idem_core::{BoxError, Subject, permanent};
/// # struct OrderPaid; struct PgConnection;
/// // A handler of `orders.<region>.paid`.
/// async fn order_paid(_: OrderPaid, Subject(subject): Subject, tx: &mut PgConnection) -> Result<(), BoxError> {
///     let region = subject.as_deref().and_then(|subject| subject.split('.').nth(1));
///     let region = region.ok_or_else(|| permanent("the subject names no region"))?;
///     # assert_eq!(region, "eu"); let _ = tx;
///     Ok(())
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
/// // A test calls it with any subject.
/// order_paid(OrderPaid, Subject(Some("orders.eu.paid".to_owned())), &mut PgConnection).await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Subject(pub Option<String>);

impl Param for Subject {}
impl<S> Extract<S> for Subject {
    fn extract(from: &Extraction<'_, S>) -> Result<Self, BoxError> {
        Ok(Self(from.delivery.subject().map(ToOwned::to_owned)))
    }
}

/// The key by which the broker chose the message's partition, such as the key of a Kafka record; `None` if it has none.
/// A tombstone deletes this key.
///
/// ```
/// # use idem_core::{BoxError, PartitionKey, permanent};
/// # struct Customer; struct PgConnection;
/// // The key of the record is the customer's id, also where the record deletes it.
/// async fn customer(
///     customer: Option<Customer>,
///     PartitionKey(id): PartitionKey,
///     tx: &mut PgConnection,
/// ) -> Result<(), BoxError> {
///     let id = id.ok_or_else(|| permanent("the record has no key"))?;
///     match customer {
///         Some(customer) => { /* INSERT .. ON CONFLICT (id) DO UPDATE */ }
///         None => { /* DELETE FROM customers WHERE id = $1 */ }
///     }
///     # let _ = (id, tx);
///     Ok(())
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PartitionKey(pub Option<Bytes>);

/// Shows only the length: the key may contain personal data.
impl std::fmt::Debug for PartitionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PartitionKey").field(&self.0.as_ref().map(|key| format!("{} bytes", key.len()))).finish()
    }
}

impl Param for PartitionKey {}
impl<S> Extract<S> for PartitionKey {
    fn extract(from: &Extraction<'_, S>) -> Result<Self, BoxError> {
        Ok(Self(from.delivery.partition_key.clone()))
    }
}

impl Param for CloudEvent {}
impl<S> Extract<S> for CloudEvent {
    /// The error is permanent: a delivery that is not a CloudEvent will not be one at the next attempt.
    fn extract(from: &Extraction<'_, S>) -> Result<Self, BoxError> {
        let none =
            || permanent("the delivery does not say that it is a CloudEvent, or the worker has no `.cloud_events()`");
        from.delivery.cloud_event().cloned().ok_or_else(none)
    }
}

/// The key under which the message was claimed, for example for a unique column of the table that the handler writes.
///
/// It is not for other systems: it may contain personal data, and two calls for one message would have the same key. They get
/// an [`OutboundKey`](crate::OutboundKey).
///
/// ```
/// # use idem_core::{BoxError, IdempotencyKey, Key};
/// # struct Refund; struct PgConnection;
/// async fn refund(_: Refund, IdempotencyKey(key): IdempotencyKey, tx: &mut PgConnection) -> Result<(), BoxError> {
///     // INSERT INTO refunds (event) VALUES ($1), with key.as_bytes()
///     # let _ = (key, tx);
///     Ok(())
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
/// # refund(Refund, IdempotencyKey(Key::of("e-1")?), &mut PgConnection).await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(pub Key);

impl Param for IdempotencyKey {}
impl<S> Extract<S> for IdempotencyKey {
    fn extract(from: &Extraction<'_, S>) -> Result<Self, BoxError> {
        Ok(Self(from.key.clone()))
    }
}

impl Param for Outbox {
    const STAGES: bool = true;
}
impl<S> Extract<S> for Outbox {
    fn extract(from: &Extraction<'_, S>) -> Result<Self, BoxError> {
        Ok(from.outbox.get_or_init(Self::default).clone())
    }
}

macro_rules! tuples {
    ($(($($param:ident)*))*) => {$(
        impl<$($param: Param),*> Param for ($($param,)*) {
            const STAGES: bool = false $(|| $param::STAGES)*;
            const NEEDS_CALL: bool = false $(|| $param::NEEDS_CALL)*;
            const CALLS: usize = 0 $(+ $param::CALLS)*;
        }
        impl<S, $($param: Extract<S>),*> Extract<S> for ($($param,)*) {
            fn extract(_from: &Extraction<'_, S>) -> Result<Self, BoxError> {
                Ok(($($param::extract(_from)?,)*))
            }
            fn external() -> Option<ErasedCall<S>> {
                None$(.or_else($param::external))*
            }
        }
    )*};
}
tuples! { () (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) }
