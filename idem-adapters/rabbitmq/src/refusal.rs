//! A channel that the server closed because of a published message.

/// Why the server closed a channel.
#[derive(Debug, PartialEq)]
pub(crate) enum Refusal {
    /// Everything else: the exchange is gone, the user may not write to it, or an error of the server. It concerns all messages.
    Broker,
    /// A message is larger than the server takes.
    TooLarge { limit: usize },
    /// Something else about one message, for example a routing key that the user may not use.
    Message,
}

impl Refusal {
    /// Reads the server's text. (Texts of 3.10.8 and 4.0.5, from `rabbit_channel:check_msg_size` and
    /// `rabbit_access_control`.)
    pub(crate) fn parse(code: u16, text: &str) -> Self {
        const ACCESS_REFUSED: u16 = 403;
        const PRECONDITION_FAILED: u16 = 406;
        match code {
            // The permissions of topics are checked per routing key: "access to topic 'a.b' in exchange ..".
            ACCESS_REFUSED if text.contains("access to topic ") => Self::Message,
            PRECONDITION_FAILED => largest(text).map_or(Self::Message, |limit| Self::TooLarge { limit }),
            _ => Self::Broker,
        }
    }
}

/// Parses "message size 17000000 is larger than max size 16777216" (or "configured max size").
fn largest(text: &str) -> Option<usize> {
    let (_, limit) = text.split_once("message size ")?.1.split_once(" is larger than ")?;
    limit.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_concerns_one_message_or_the_exchange() {
        for (code, text, refusal) in [
            (404, "NOT_FOUND - no exchange 'events' in vhost '/'", Refusal::Broker),
            (403, "ACCESS_REFUSED - access to exchange 'events' in vhost '/' refused for user 'u'", Refusal::Broker),
            (403, "ACCESS_REFUSED - cannot publish to internal exchange 'e' in vhost '/'", Refusal::Broker),
            (
                403,
                "ACCESS_REFUSED - access to topic 'a.b' in exchange 'events' in vhost '/' refused for user 'u'",
                Refusal::Message,
            ),
            (
                406,
                "PRECONDITION_FAILED - message size 17000000 is larger than configured max size 16777216",
                Refusal::TooLarge { limit: 16_777_216 },
            ),
            (406, "PRECONDITION_FAILED - message size 9 is larger than max size 8", Refusal::TooLarge { limit: 8 }),
            (406, "PRECONDITION_FAILED - invalid message", Refusal::Message),
            // Nothing in these says that it is about the message.
            (403, "ACCESS_REFUSED - the node is shutting down", Refusal::Broker),
            (405, "RESOURCE_LOCKED - cannot obtain exclusive access", Refusal::Broker),
            (504, "CHANNEL_ERROR - expected 'channel.open'", Refusal::Broker),
            (506, "RESOURCE_ERROR - out of memory", Refusal::Broker),
            (541, "INTERNAL_ERROR", Refusal::Broker),
            (599, "UNHEARD_OF", Refusal::Broker),
        ] {
            assert_eq!(Refusal::parse(code, text), refusal, "{text}");
        }
    }
}
