//! A server and its streams.

use std::sync::Arc;

use idem_core::Error;

use crate::config::Config;
use crate::connection::Connection;
use crate::error;
use crate::name::invalid;
use crate::options::Options;
use crate::sink::JetStream;
use crate::stream::Stream;

/// A NATS server with JetStream, or a cluster of them, with a login that works. It keeps no connection open.
///
/// ```no_run
/// # use idem_core::{Error, Store, Worker};
/// # use idem_nats::Nats;
/// # async fn open<S: Store>(store: S) -> Result<(), Error> {
/// let nats = Nats::connect("nats://nats-1:4222,nats://nats-2:4222").await?;
/// // Each worker has a durable consumer with the worker's name.
/// let orders = Worker::new("billing-orders", store.clone(), nats.stream("ORDERS").await?);
/// let payments = Worker::new("billing-payments", store, nats.stream("PAYMENTS").await?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Nats {
    config: Arc<Config>,
}

impl Nats {
    /// Connects to the server at `nats://host:4222`, or `tls://` for TLS with the system's certificates. A login
    /// precedes the host: `user:password@` or `token@`. Several servers of a cluster are separated by commas.
    ///
    /// # Errors
    /// The same as those of [`Options::connect`].
    pub async fn connect(url: impl Into<String>) -> Result<Self, Error> {
        Self::options(url).connect().await
    }

    /// Returns the options for a connection to this URL, as [`connect`](Self::connect) takes it.
    ///
    /// ```no_run
    /// # use idem_nats::Nats;
    /// # async fn example(seed: String, certificate: Vec<u8>, key: Vec<u8>) -> Result<(), idem_core::Error> {
    /// // From a leaf node to the JetStream of the hub, with an nkey that may subscribe only below `_INBOX_billing`.
    /// let leaf = Nats::options("nats://leaf:4222").nkey(seed).inbox_prefix("_INBOX_billing").domain("hub");
    /// let nats = leaf.connect().await?;
    /// // A certificate instead of a password.
    /// let mutual = Nats::options("tls://nats:4222").tls_identity(certificate, key).connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn options(url: impl Into<String>) -> Options {
        Options::new(url.into())
    }

    /// Returns an existing stream.
    ///
    /// # Errors
    /// The stream does not exist, the account has no JetStream, or the server cannot be used. The message says how to
    /// fix it.
    pub async fn stream(&self, name: impl Into<String>) -> Result<Stream, Error> {
        let name = name.into();
        if let Some(why) = invalid(&name) {
            return Err(Error::Config(format!(
                "{name:?} is not a valid name of a stream, because it {why}: give the name of an existing stream"
            )));
        }
        let connection = Connection::open(&self.config, &name).await?;
        let found = connection.jetstream().get_stream(&name).await;
        found.map_err(|error| error::stream(&name, &self.config.address, &connection.api, error))?;
        Ok(Stream::new(Arc::clone(&self.config), name))
    }

    /// Returns the streams of this JetStream, to which a relay publishes. A message's subject is `prefix`, followed by its
    /// destination: with the prefix `shop.`, a message to `order.paid` has the subject `shop.order.paid`. The prefix may
    /// be empty.
    ///
    /// A message is confirmed by the `PubAck` of its stream. A stream recognizes a copy by its id for the duration of its
    /// duplicate window (2 minutes by default) and does not store it again: that is a success, also for a message that an
    /// operator publishes again.
    ///
    /// **A confirm is worth less** with some settings of a stream. With the retention `interest`, a message that matches
    /// the filter of no consumer is confirmed and not stored, so it is lost: create the consumers first. With a limit and
    /// `discard: old`, the default, a new message is confirmed, and the oldest one is deleted, read or not. With `no_ack`
    /// there is no confirm, and messages are published again and again. The relay warns of the first and the last at its
    /// start.
    ///
    /// | message | NATS |
    /// |---|---|
    /// | id | header `Nats-Msg-Id`: the id, a slash and the subject, since a stream compares it across subjects |
    /// | event type, content type | headers `event-type`, `Content-Type` |
    /// | key | header `idem-key`; bytes other than printable ASCII, the blank, `"` and `%` are percent-encoded |
    /// | headers | headers; a name is printable ASCII without colons and does not begin with `Nats-`, a value is one line of UTF-8 |
    ///
    /// | failure | |
    /// |---|---|
    /// | no stream has the subject; the subject is forbidden, or has a wildcard; a header begins with `Nats-`, which would be an order to the stream; the message is larger than `max_payload` with its headers, or than the stream takes | the message is refused, and its neighbours are not |
    /// | the stream is full and has `discard: new`, or its account is full; it does not answer because it has no leader; it answers with any other error | a failure of the broker |
    /// | the connection is lost, or does not come up within 10 seconds | a failure of the broker; the next calls share one new connection |
    ///
    /// A message costs one request and its answer; any number may be under way on the one connection. Publishing is cancel
    /// safe: a call that is dropped was published or not, and neither fails nor confirms another.
    ///
    /// When the relay starts, some stream must have subjects with the prefix. The login must be allowed to publish to
    /// the subjects and to subscribe to `_INBOX.>` or below [`Options::inbox_prefix`]; `$JS.API.STREAM.NAMES` is for
    /// the check, and to distinguish a stream without a leader from a subject that no stream has: without it, attempts
    /// count during an election. `$JS.API.STREAM.LIST` is for the warnings.
    ///
    /// ```no_run
    /// # fn jetstream(nats: idem_nats::Nats) {
    /// let events = nats.jetstream("shop.").cloud_events("/shop/billing");
    /// # let _ = events; }
    /// ```
    pub fn jetstream(&self, prefix: impl Into<String>) -> JetStream {
        JetStream::new(Arc::clone(&self.config), prefix.into())
    }
}

impl Options {
    /// Connects once, to check that the server responds and that the login works.
    ///
    /// # Errors
    /// [`Error::Config`] for a URL, a file, a seed or a certificate that cannot be read; [`Error::Broker`] if the
    /// server cannot be reached, does not respond within 10 seconds, rejects the login or fails TLS verification. The
    /// message says how to fix it.
    pub async fn connect(self) -> Result<Nats, Error> {
        let config = self.config()?;
        Connection::open(&config, "connect").await?;
        Ok(Nats { config: Arc::new(config) })
    }
}

#[cfg(test)]
mod tests {
    use nkeys::KeyPair;

    use super::*;
    use crate::credentials::Credentials;

    #[test]
    fn no_public_configuration_shows_a_secret() {
        let seed = KeyPair::new_user().seed().unwrap();
        for options in [
            Nats::options("nats://u:s3ntinel@h"),
            Nats::options("nats://s3ntinel@h"),
            Nats::options("tls://h").nkey(&seed).tls_ca("s3ntinel"),
        ] {
            let shown = format!("{options:?}");
            assert!(!shown.contains("ntinel") && !shown.contains(&seed), "{shown}");
        }
        let token = Credentials::token("s3ntinel");
        assert_eq!(format!("{token:?}"), "Credentials { .. }");
        let got = Nats::options("nats://h").credentials(async || Ok(Credentials::password("u", "s3ntinel")));
        for options in [Nats::options("nats://u:s3ntinel@h"), Nats::options("nats://h").nkey(&seed), got] {
            let config = Arc::new(options.config().unwrap());
            let stream = Stream::new(Arc::clone(&config), "ORDERS".to_owned());
            for shown in [format!("{config:?}"), format!("{:?}", Nats { config }), format!("{stream:?}")] {
                assert!(!shown.contains("ntinel") && !shown.contains(&seed) && shown.contains("nats://h"), "{shown}");
            }
        }
    }
}
