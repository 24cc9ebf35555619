//! The error messages. None contains a password, a token or a seed: they name an address, which has none.

use std::fmt::Display;

use async_nats::ConnectErrorKind;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::rustls;
use idem_core::Error;

/// Returns the error of a connection that could not be made.
pub(crate) fn connecting(address: impl Display, error: async_nats::ConnectError) -> Error {
    let remedy = match error.kind() {
        ConnectErrorKind::AuthorizationViolation => {
            "the server refuses the login: check user and password, or the token, in the URL, the file given to \
             .credentials_file, the seed given to .nkey, or what the callback given to .credentials returns"
        }
        ConnectErrorKind::Authentication => "the login could not be signed: check the file of credentials or the seed",
        _ if is_refused_by_the_server(&error) => IDENTITY,
        ConnectErrorKind::Tls => TLS,
        ConnectErrorKind::Io if is_tls(&error) => TLS,
        ConnectErrorKind::Dns => "the host's name cannot be resolved: check it",
        _ => "check that the server runs and that its port can be reached from here",
    };
    Error::broker(format!("cannot connect to NATS at {address}: {remedy}"), error)
}

const TLS: &str = "the server's certificate must be valid for this host name and come from a CA of this system: for a \
                   private CA use .tls_ca(pem), and check that the server speaks TLS";

const IDENTITY: &str = "the server refuses TLS with this client: where it asks for a certificate, give one by \
                        .tls_identity(certificate, key) that comes from a CA of the server's and has not expired";

/// Returns the error of a stream whose information could not be read.
pub(crate) fn stream(
    name: &str,
    address: impl Display,
    api: &str,
    error: async_nats::error::Error<GetStreamErrorKind>,
) -> Error {
    if let GetStreamErrorKind::JetStream(answer) = error.kind() {
        if answer.error_code() == ErrorCode::STREAM_NOT_FOUND {
            return Error::Config(format!(
                "stream `{name}` on {address} does not exist: create it (nats stream add {name}), or check its name and \
                 the account of the login"
            ));
        }
        if matches!(
            answer.error_code(),
            ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT
        ) {
            return Error::Config(format!("{address} has no JetStream for this account: {ENABLE}"));
        }
        return Error::broker(format!("cannot read the settings of stream `{name}` on {address}"), error);
    }
    Error::broker(
        format!(
            "no answer about stream `{name}` from {address}: {ENABLE}, and check that the login may publish to \
             {api}.STREAM.INFO.{name} and subscribe to _INBOX.>{}",
            if api == "$JS.API" { "" } else { "; and check the name given to .domain(..)" }
        ),
        error,
    )
}

const ENABLE: &str = "start the server with JetStream (-js, or a jetstream block), enabled for the account";

/// Returns whether TLS failed. rustls reports a failed handshake as an I/O error of kind `InvalidData` (or
/// `UnexpectedEof` inside it).
fn is_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source()).any(|error| {
        error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::InvalidData)
    })
}

/// Returns whether the server rejected the handshake. If the client rejects it, the cause is the server's certificate.
fn is_refused_by_the_server(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source()).any(|error| {
        let inner = error.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
        let said = inner.and_then(|inner| inner.downcast_ref()).or_else(|| error.downcast_ref());
        matches!(said, Some(rustls::Error::AlertReceived(_)))
    })
}
