//! The namespaces of the handlers that make external calls.

use std::sync::Arc;

use crate::registry::Registered;
use crate::routes::RouteCall;
use crate::store::HandlerId;
use crate::{Error, Store};

/// Returns the external call of each of these registered handlers, if it makes one, with the namespace of its handler.
pub(super) async fn calls<S: Store>(
    store: &S,
    ids: &[HandlerId],
    handlers: &[Arc<dyn Registered<S>>],
) -> Result<Vec<Option<RouteCall>>, Error> {
    let mut calls = Vec::with_capacity(handlers.len());
    for (id, handler) in ids.iter().zip(handlers) {
        calls.push(match handler.external() {
            Some(limits) => Some(RouteCall { limits, namespace: store.call_namespace(*id).await? }),
            None => None,
        });
    }
    Ok(calls)
}
