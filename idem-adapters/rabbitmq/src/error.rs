//! Error messages. They name addresses without their password, so none contains one.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use idem_core::Error;
use lapin::ErrorKind;
use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};

/// The error of an ack or release that was on its way when the connection ended.
pub(crate) const UNANSWERED: &str =
    "the connection ended before the broker was known to have received the ack or release";

/// Returns the error for a request that was not answered within `limit`.
pub(crate) fn silent(limit: Duration) -> io::Error {
    io::Error::other(format!("no answer within {} seconds", limit.as_secs()))
}

/// Returns the error for a failed connection. `login` is the fix if the server refused the login.
pub(crate) fn connecting(address: impl Display, port: u16, vhost: &str, login: &str, error: lapin::Error) -> Error {
    let remedy = match error.kind() {
        ErrorKind::ProtocolError(answer) => match answer.kind() {
            AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => {
                login.to_owned()
            }
            AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED) if vhost.is_empty() => {
                "the slash at the end of the URL names the virtual host without a name: leave it out, or write /%2f, to mean /".to_owned()
            }
            AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED) => {
                "check that the virtual host is there (rabbitmqctl list_vhosts) and that the user may use it \
                 (rabbitmqctl set_permissions)"
                    .to_owned()
            }
            _ => "see the server's log".to_owned(),
        },
        ErrorKind::IOError(error) if is_tls(error) && error.to_string().contains("received fatal alert") => {
            "the server has ended the handshake of TLS: where it asks for a certificate of the client's, give one by \
             .tls_identity(chain, key) that is valid now and of an authority that the server trusts"
                .to_owned()
        }
        ErrorKind::IOError(error) if is_tls(error) => {
            "the server's certificate must be valid for this host name and come from a CA of this system: for a \
             private CA use .tls_ca(pem), and check that the port speaks TLS (usually 5671)"
                .to_owned()
        }
        _ => format!("check that the server runs and that port {port} can be reached from here"),
    };
    Error::broker(format!("cannot connect to RabbitMQ at {address}: {remedy}"), error)
}

/// Returns the error for a message that lapin cannot parse.
pub(crate) fn unreadable(place: &str, error: lapin::Error) -> Error {
    let what = format!(
        "lapin cannot parse a message of {place}, and closed the connection: a message id, a type, a routing key or \
         a header name is not UTF-8. Another connection takes the message out of the queue, and it becomes a dead \
         letter"
    );
    Error::broker(what, error)
}

/// The server cancelled a consumer; it sends no reason.
pub(crate) const CANCELLED: &str = "the server has cancelled the consumer: the queue was deleted, its leader was lost, or a \
                                    delivery stayed unsettled for longer than the server's consumer timeout";

/// Returns the error for an exchange that cannot be published to because of the server's answer.
pub(crate) fn exchange(name: &str, address: impl Display, error: lapin::Error) -> Error {
    match answer(&error) {
        Some((AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND), _)) => Error::Config(format!(
            "exchange `{name}` does not exist on {address}: declare it there, as durable, and bind the queues to it"
        )),
        _ => Error::broker(format!("cannot publish to exchange `{name}` on {address}"), error),
    }
}

/// Returns the server's error and its text, if it answered.
pub(crate) fn answer(error: &lapin::Error) -> Option<(&AMQPErrorKind, &str)> {
    match error.kind() {
        ErrorKind::ProtocolError(answer) => Some((answer.kind(), answer.get_message().as_str())),
        _ => None,
    }
}

/// Reports whether this is a TLS error. rustls returns a failed handshake as an I/O error of kind `InvalidData` (or
/// with an inner `UnexpectedEof`).
fn is_tls(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData
}
