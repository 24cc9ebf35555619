//! Checks before the start of the external calls of a worker's handlers.

use std::time::Duration;

use crate::external::{AT_MOST_ONCE, CallLimits};
use crate::registry::Facts;

/// The longest timeout of a call: a day.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Returns what is wrong with a call and its handler.
pub(super) fn flaw(handler: &Facts, limits: &CallLimits) -> Option<String> {
    let CallLimits { name, timeout, key_life, writes, takes_key, .. } = limits;
    if name.ends_with(AT_MOST_ONCE) {
        return Some(format!(
            "makes the call `{name}`: rows keep a call without a key under a name with this ending. Give the call another \
             name"
        ));
    }
    if handler.is_natural {
        return Some(format!(
            "is natural and makes the call `{name}`: a copy of a message would call again. Remove `natural`"
        ));
    }
    if handler.calls > 1 {
        return Some(format!(
            "makes {} calls, of which the first is `{name}`: a handler makes one, and the others would never be made. Let it hand \
             over to another handler for each, `outbox.local::<..>(..)`",
            handler.calls
        ));
    }
    if handler.takes_batch {
        return Some(format!(
            "takes a batch and makes the call `{name}`, which is made for one message: let it take one message"
        ));
    }
    if !handler.call_fits {
        return Some(format!("makes the call `{name}`, which takes another message"));
    }
    if *writes {
        return Some(format!(
            "makes the call `{name}`, which takes `Outbox`: a call has no transaction. Take it in the handler"
        ));
    }
    if key_life.is_some() && !takes_key {
        return Some(format!(
            "makes the call `{name}`, which has a `key_life` and takes no `OutboundKey`: the provider could not recognize a call \
             that is repeated. Take the key and send it, or make it a call without a key, `at_most_once`. A parameter type that \
             extracts the key by itself has to say so, `Param::NEEDS_CALL`"
        ));
    }
    if timeout.is_zero() {
        return Some(format!("makes the call `{name}`, whose timeout is zero: give it a longer time"));
    }
    if *timeout > LONGEST {
        return Some(format!(
            "makes the call `{name}`, whose timeout is {timeout:?}: a process that ends in it leaves its message for that long. Give \
             it at most {LONGEST:?}"
        ));
    }
    let too_short = key_life.is_some_and(|_| !limits.is_usable(None));
    too_short.then(|| {
        format!(
            "makes the call `{name}`, which may take {timeout:?}, and 10 seconds until it is sent. Its `key_life` of {:?}, less a \
             tenth, is shorter, so the provider could forget a key before the call arrives: lower the timeout, or make it a call \
             without a key, `at_most_once`",
            key_life.unwrap_or_default()
        )
    })
}
