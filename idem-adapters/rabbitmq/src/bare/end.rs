//! The end of a connection that publishes.

/// Why a connection has ended.
#[derive(Debug, PartialEq)]
pub(crate) enum End {
    /// The server closed the channel, because of one of the messages that were unconfirmed or of their exchange.
    Refused {
        code: u16,
        text: String,
        /// How many messages were unconfirmed.
        unconfirmed: usize,
    },
    /// The connection was lost or closed.
    Lost(String),
}
