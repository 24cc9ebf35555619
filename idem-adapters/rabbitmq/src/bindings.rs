//! Bindings of a declared queue.

use idem_core::Error;
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::{FieldTable, ShortString};

use crate::address::Address;
use crate::bare::Bare;
use crate::error::answer;

/// A binding.
#[derive(Debug, Clone)]
pub(crate) struct Binding {
    pub(crate) exchange: ShortString,
    pub(crate) routing_key: ShortString,
    pub(crate) arguments: FieldTable,
}

/// Binds a queue. Existing bindings remain.
pub(crate) async fn bind(bare: &mut Bare, address: &Address, name: &str, bindings: &[Binding]) -> Result<(), Error> {
    for binding in bindings {
        let Binding { exchange, routing_key, arguments } = binding.clone();
        let bound = bare.bind(name, exchange, routing_key, arguments).await;
        bound.map_err(|error| failed(address, name, binding, error))?;
    }
    Ok(())
}

fn failed(address: &Address, name: &str, binding: &Binding, error: lapin::Error) -> Error {
    let Binding { exchange, routing_key, .. } = binding;
    let what = format!("queue `{name}` cannot be bound to exchange `{exchange}` for `{routing_key}` on {address}");
    match answer(&error) {
        Some((AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND), text)) => Error::Config(format!(
            "{what}: declare the exchange there, since idem declares none. The server says: {text}"
        )),
        Some((AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED), text)) => Error::Config(format!(
            "{what}: grant the user `write` on the queue and `read` on the exchange, or bind it as another user. The server \
             says: {text}"
        )),
        _ => Error::broker(what, error),
    }
}
