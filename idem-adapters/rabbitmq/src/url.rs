//! Parsing of the server URL.

use idem_core::Error;
use lapin::types::ShortString;
use lapin::uri::AMQPUri;

/// The heartbeat in seconds, which limits how long a silently dead connection goes unnoticed. RabbitMQ's default is 60;
/// its manual recommends 5 to 20.
const HEARTBEAT: u16 = 20;

/// The parts of a URL.
pub(crate) struct Url {
    pub(crate) uri: AMQPUri,
    /// Whether it names a user. Without one, lapin uses `guest`.
    pub(crate) has_user: bool,
}

/// Parses a URL. Does not pass on the errors of lapin's parser: one of them repeats the URL, including the password.
pub(crate) fn parse(url: &str) -> Result<Url, Error> {
    let bad = |what: &str| {
        Error::Config(format!(
            "the URL of RabbitMQ {what}: write amqp://user:password@host:port/vhost, with the special characters of \
             user, password and vhost percent-encoded"
        ))
    };
    let rest = url
        .strip_prefix("amqp://")
        .or_else(|| url.strip_prefix("amqps://"))
        .ok_or_else(|| bad("does not begin with amqp:// or amqps://"))?;
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // An unencoded `/`, `?` or `#` in the password ends the authority early. The rest would be parsed as a host, a port
    // and a virtual host, and would appear in errors.
    if path.contains('@') {
        return Err(bad("has an @ behind its host"));
    }
    let mut uri: AMQPUri = url.parse().map_err(|_| bad("cannot be read"))?;
    if ShortString::try_new(uri.vhost.as_str()).is_err() {
        return Err(bad("has a virtual host of more than 255 bytes"));
    }
    // lapin parses an IPv6 address as no host, and no host as localhost.
    let host = authority.rsplit('@').next().unwrap_or(authority);
    if let Some(end) = host.find(']').filter(|_| host.starts_with('[')) {
        uri.authority.host = host[1..end].to_owned();
    }
    uri.query.heartbeat = uri.query.heartbeat.or(Some(HEARTBEAT));
    Ok(Url { uri, has_user: authority.contains('@') })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENTINEL: &str = "s3ntinel";

    #[test]
    fn no_url_that_cannot_be_read_is_repeated() {
        for url in [
            "",
            "s3ntinel",
            "amqp:guest:s3ntinel@localhost",
            "http://guest:s3ntinel@localhost",
            "amqp://guest:s3/ntinel@localhost/%2f",
            "amqp://guest:s3?ntinel@localhost/%2f",
            "amqp://guest:12#s3ntinel@localhost/%2f",
            "amqp://guest:12/s3ntinel@localhost/%2f",
            "amqp://guest:12?auth_mechanism=s3ntinel@localhost",
            "amqp://guest:s3ntinel@localhost:port/%2f",
            "amqp://guest:s3ntinel@localhost/%2f?heartbeat=s3ntinel",
            "amqp://guest:s3ntinel@localhost/%2f?auth_mechanism=s3ntinel",
            "amqp://guest:s3ntinel%ff@localhost/%2f",
            "amqp://guest:s3ntinel@[::1/%2f",
        ] {
            let error = parse(url).map(|_| ()).unwrap_err();
            assert!(matches!(error, Error::Config(_)));
            for text in [error.to_string(), format!("{error:?}")] {
                assert!(!text.contains(SENTINEL) && !text.contains("ntinel"), "{url}: {text}");
                assert!(text.contains("percent-encoded"), "{url}: {text}");
            }
        }
    }

    #[test]
    fn an_ipv6_address_is_not_localhost() {
        let host = |url| parse(url).unwrap().uri.authority.host;
        assert_eq!(host("amqp://u:p@[fd00::7]:5673/%2f"), "fd00::7");
        assert_eq!(host("amqp://[::1]"), "::1");
        assert_eq!(host("amqp://10.0.0.7"), "10.0.0.7");
        assert_eq!(host("amqp://u:p%5B@rabbit/%2f"), "rabbit");
    }

    #[test]
    fn a_heartbeat_in_the_url_wins() {
        assert_eq!(parse("amqp://h").unwrap().uri.query.heartbeat, Some(HEARTBEAT));
        assert_eq!(parse("amqp://h?heartbeat=5").unwrap().uri.query.heartbeat, Some(5));
    }

    #[test]
    fn it_is_known_whether_a_user_is_named() {
        for (url, has_user) in
            [("amqp://h", false), ("amqp://u@h", true), ("amqp://u:p@h/v", true), ("amqp://h/v", false)]
        {
            assert_eq!(parse(url).unwrap().has_user, has_user, "{url}");
        }
    }

    #[test]
    fn a_virtual_host_that_is_too_long_is_refused_and_does_not_panic() {
        assert!(parse(&format!("amqp://h/{}", "v".repeat(256))).is_err());
    }
}
