//! The items that the expansions of `#[idempotent]` and `#[derive(KeyPart)]` name, and those of the test kit. They are private
//! and may change without notice.

pub use std::option::Option;
pub use std::primitive::{bool, str};
pub use std::result::Result;

pub use std::time::Duration;

pub use crate::external::ErasedCall;
use crate::key::absent::{absent, absent_in, no_id};
pub use crate::key_value::BestEffort;
pub use crate::{
    BoxError, CallError, CalledBy, Delivery, External, Fingerprint, Found, Handler, Key, KeyError, KeyPart,
};
use crate::{CloudEvent, Engine, HasConnection};

/// A fact of the delivery, as a key or a part of one. If it is missing, writing the key fails.
#[derive(Debug)]
pub struct Fact<'a>(Result<&'a [u8], KeyError>);

impl<'a> Fact<'a> {
    fn of(found: Option<&'a [u8]>, what: impl FnOnce() -> String) -> Self {
        Self(found.ok_or_else(|| KeyError::Missing { what: what() }))
    }
}

impl KeyPart for Fact<'_> {
    fn write(&self, key: &mut Key) -> Result<(), KeyError> {
        key.append(self.0.clone()?)
    }
}

/// The header with this name. One that is null, a boolean, a table or a list is no id.
pub fn header<'a>(delivery: &'a Delivery, name: &str) -> Fact<'a> {
    let headers = delivery.headers();
    if headers.differ(name) {
        return Fact::of(None, || format!("single header `{name}`: it has several, with different values"));
    }
    let value = headers.get(name);
    match value.and_then(no_id) {
        Some(found) => Fact(Err(KeyError::Absent(format!("the header `{name}` is {found}")))),
        None => Fact::of(value, || format!("header `{name}`")),
    }
}

/// The key of one part, unless it stands for no value.
///
/// # Errors
/// The key stands for no value, or there is none.
pub fn present(key: Result<Key, KeyError>) -> Result<Key, KeyError> {
    key.and_then(|key| checked(absent(key.as_bytes()), key))
}

/// The key of several parts, unless a part stands for no value, or all parts are 0.
///
/// # Errors
/// A part stands for no value, or all parts are 0, or there is no key.
pub fn all_present(key: Result<Key, KeyError>) -> Result<Key, KeyError> {
    key.and_then(|key| checked(absent_in(key.as_bytes()), key))
}

fn checked(found: Option<&str>, key: Key) -> Result<Key, KeyError> {
    let why = |found| {
        format!(
            "the key, or a part of it, is {found}, which is also what an absent value decodes to. Let the producer send an id; \
             if this value is one, write `#[idempotent(.., zero_key)]`"
        )
    };
    found.map_or(Ok(key), |found| Err(KeyError::Absent(why(found))))
}

/// The broker's message id.
pub fn message_id(delivery: &Delivery) -> Fact<'_> {
    Fact::of(delivery.message_id().map(str::as_bytes), || "message id, or several different ones".to_owned())
}

/// The message's position at the broker.
pub fn position(delivery: &Delivery) -> Fact<'_> {
    Fact::of(delivery.position().map(str::as_bytes), || "position".to_owned())
}

/// The key by which the broker chooses a partition.
pub fn partition_key(delivery: &Delivery) -> Fact<'_> {
    Fact::of(delivery.partition_key(), || "partition key".to_owned())
}

/// The source and id of a CloudEvent, as a key or a part of one.
#[derive(Debug)]
pub struct CloudEventId<'a>(Option<&'a CloudEvent>);

impl KeyPart for CloudEventId<'_> {
    fn write(&self, key: &mut Key) -> Result<(), KeyError> {
        let missing =
            || KeyError::Missing { what: "CloudEvent id: it does not say that it is a CloudEvent".to_owned() };
        let event = self.0.ok_or_else(missing)?;
        match absent(event.id().as_bytes()) {
            // Ids are unique within their source, and may count from 0.
            None | Some("0") => key.append(event.key()?.as_bytes()),
            Some(found) => Err(KeyError::Absent(format!("the id of the CloudEvent is {found}"))),
        }
    }
}

/// Reads a delivery as a worker with CloudEvents does, for the source test suite: returns its source and id, and its
/// data.
pub fn cloud_event(mut delivery: Delivery) -> Option<Result<(String, Vec<u8>), String>> {
    let read = crate::cloud_event::read(&delivery)?;
    delivery.rare_mut().cloud_event = Some(read.clone());
    let read = read.map(|event| (format!("{} {}", event.source(), event.id()), delivery.data().to_vec()));
    Some(read.map_err(|why| why.to_string()))
}

/// The identity of the event.
pub fn cloud_event_id(delivery: &Delivery) -> CloudEventId<'_> {
    CloudEventId(delivery.cloud_event())
}

/// The return type of a handler's function. It is a trait bound, not a `Result` in the signature of [`finish`], because
/// rustc would then suggest wrapping the function's header in `Ok(..)`.
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}`",
    label = "not `Result<(), E>` with an error that idem can keep",
    note = "return `Result<(), E>`, where `E` is an error that is `Send + Sync + 'static`, a `String`, or an \
            `anyhow::Error`; what the handler has to say goes into the database, not into the `Ok`"
)]
pub trait Returned {
    /// Converts the result for the worker.
    fn finish(self) -> Result<(), BoxError>;
}

#[diagnostic::do_not_recommend]
impl<E: Into<BoxError>> Returned for Result<(), E> {
    fn finish(self) -> Result<(), BoxError> {
        self.map_err(Into::into)
    }
}

/// Converts the handler's result for the worker.
pub fn finish<R: Returned>(returned: R) -> Result<(), BoxError> {
    returned.finish()
}

/// Stands for each type of a handler whose signature has a mistake. It satisfies every bound, so that the mistake is
/// the only error that the user sees.
#[derive(Debug, serde::Deserialize, serde::Serialize)]
pub struct Unknown {}

#[diagnostic::do_not_recommend]
impl<E: Engine> HasConnection<Unknown> for E {
    fn connection(_: &mut Self::Lent) -> &mut Unknown {
        // Never called, because a handler with a mistake does not compile; leaking a zero-sized value allocates
        // nothing.
        Box::leak(Box::new(Unknown {}))
    }
}

/// Stands for a body that could not be generated.
///
/// # Errors
/// Always. It is never called, because code with a mistake does not compile.
pub fn stub<T, E: From<KeyError>>() -> Result<T, E> {
    Err(KeyError::Empty.into())
}

/// The return type of a function with `#[external]`, as [`Returned`] for that of a handler.
#[diagnostic::on_unimplemented(
    message = "a call cannot return `{Self}`",
    label = "not `Result<T, E>` with an error that idem can keep",
    note = "return `Result<T, CallError>`, where `T` is the answer, which is stored as JSON"
)]
pub trait Answered {
    /// The answer.
    type Answer;

    /// Converts the result for the worker.
    ///
    /// # Errors
    /// The call has failed.
    fn answered(self) -> Result<Self::Answer, CallError>;
}

#[diagnostic::do_not_recommend]
impl<T, E: Into<CallError>> Answered for Result<T, E> {
    type Answer = T;

    fn answered(self) -> Result<T, CallError> {
        self.map_err(Into::into)
    }
}

/// Converts the result of a call for the worker.
///
/// # Errors
/// The call has failed.
pub fn answered<R: Answered>(returned: R) -> Result<R::Answer, CallError> {
    returned.answered()
}

/// Converts the result of a question for the worker.
///
/// # Errors
/// The question has failed.
pub fn found<T, E: Into<BoxError>>(returned: Result<Found<T>, E>) -> Result<Found<T>, BoxError> {
    returned.map_err(Into::into)
}
