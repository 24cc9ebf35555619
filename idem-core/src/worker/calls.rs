//! Checks before the start of the external calls of a worker's handlers.

use std::time::Duration;

use crate::external::{AT_MOST_ONCE, CallLimits};
use crate::registry::Facts;

/// The longest timeout of a call: a day.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Returns what is wrong with a call and its handler.
pub(super) fn flaw(handler: &Facts, limits: &CallLimits) -> Option<String> {
    let CallLimits { name, timeout, key_life, .. } = limits;
    let many = format!(
        "it makes {} calls, and only one would be made. Let it hand over to another handler for each, \
         `outbox.local::<..>(..)`",
        handler.calls
    );
    let long = format!(
        "its timeout is {timeout:?}, and a process that ends in it leaves its message for that long. Give it at most {LONGEST:?}"
    );
    let short = format!(
        "it may take {timeout:?}, and 10 seconds until it is sent. Its `key_life` of {:?}, less a tenth, is shorter, so the \
         provider could forget a key before the call arrives: lower the timeout, or make it a call without a key, `at_most_once`",
        key_life.unwrap_or_default()
    );
    let flaws: [(bool, &str); 10] = [
        (
            name.ends_with(AT_MOST_ONCE),
            "rows keep a call without a key under a name with this ending. Give the call another name",
        ),
        (handler.is_natural, "it is natural, so a copy of a message would call again. Remove `natural`"),
        (handler.calls > 1, &many),
        (handler.takes_batch, "it takes a batch, and a call is made for one message: let it take one message"),
        (!handler.call_fits, "the call takes another message than the handler"),
        (limits.writes, "the call takes `Outbox`, and a call has no transaction. Take it in the handler"),
        (
            key_life.is_some() && !limits.takes_key,
            "it has a `key_life` and takes no `OutboundKey`, so the provider could not recognize a call that is repeated. Take \
             the key and send it, or make it a call without a key, `at_most_once`. A parameter type that extracts the key by \
             itself has to say so, `Param::NEEDS_CALL`",
        ),
        (timeout.is_zero(), "its timeout is zero: give it a longer time"),
        (*timeout > LONGEST, &long),
        (!limits.is_usable(None), &short),
    ];
    let found = flaws.into_iter().find(|(is_so, _)| *is_so);
    found.map(|(_, flaw)| format!("makes the call `{name}`: {flaw}"))
}
