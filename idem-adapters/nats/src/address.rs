//! The addresses of the servers, and the login in their URL.

use std::fmt;

use async_nats::ServerAddr;
use idem_core::Error;
use percent_encoding::percent_decode_str;

use crate::credentials::{Credentials, Kind};

/// The addresses of the servers, without password or token.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) servers: Vec<ServerAddr>,
    user: Option<String>,
}

impl Address {
    /// Parses one URL, or several separated by commas. The parser's errors are not passed on, because their text may
    /// contain a password.
    pub(crate) fn parse(urls: &str) -> Result<(Self, Option<Credentials>), Error> {
        let (mut servers, mut login) = (Vec::new(), None);
        for url in urls.split(',').map(str::trim) {
            let (server, its) = server(url)?;
            servers.push(server);
            login = login.or(its);
        }
        let user = match &login {
            Some(Credentials(Kind::Password(user, _))) => Some(user.clone()),
            // A login without a colon is a token, which is secret.
            _ => None,
        };
        Ok((Self { servers, user }, login))
    }

    /// Returns whether every URL requires TLS.
    pub(crate) fn encrypted(&self) -> bool {
        self.servers.iter().all(ServerAddr::tls_required)
    }
}

fn bad(what: &str) -> Error {
    Error::Config(format!(
        "the URL of NATS {what}: write nats://host:4222, nats://user:password@host or nats://token@host, with the \
         special characters percent-encoded, or tls:// for TLS; several servers stand with commas between"
    ))
}

fn server(text: &str) -> Result<(ServerAddr, Option<Credentials>), Error> {
    let mut url = text.parse::<ServerAddr>().map_err(|_| bad("cannot be read"))?.into_inner();
    if !matches!(url.scheme(), "nats" | "tls") {
        return Err(bad("does not begin with nats:// or tls://"));
    }
    // An unescaped `/`, `?` or `#` in a password ends the authority early, and the part before it would be the host.
    if [Some(url.path()), url.query(), url.fragment()].into_iter().flatten().any(|part| part.contains('@')) {
        return Err(bad("has an @ behind its host"));
    }
    let decoded = |text: &str| -> Result<String, Error> {
        percent_decode_str(text).decode_utf8().map(Into::into).map_err(|_| bad("has a login that is not UTF-8"))
    };
    let login = match (url.username(), url.password()) {
        ("", None) => None,
        (token, None) => Some(Credentials::token(decoded(token)?)),
        (user, Some(word)) => Some(Credentials::password(decoded(user)?, decoded(word)?)),
    };
    // async-nats would show the login, and does not read it from here anyway.
    let _ = (url.set_username(""), url.set_password(None));
    let server = ServerAddr::from_url(url).map_err(|_| bad("cannot be read"))?;
    if server.host().is_empty() { Err(bad("names no host")) } else { Ok((server, login)) }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, server) in self.servers.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let host =
                if server.host().contains(':') { format!("[{}]", server.host()) } else { server.host().to_owned() };
            write!(f, "{comma}{}://{host}:{}", server.scheme(), server.port())?;
        }
        if let Some(user) = &self.user {
            write!(f, " (user `{user}`)")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_url_that_cannot_be_read_is_repeated() {
        for url in [
            "",
            "nats://",
            "nats://s3ntinel@",
            "http://u:s3ntinel@localhost",
            "ws://u:s3ntinel@localhost",
            "nats://u:s3/ntinel@localhost",
            "nats://u:12#s3ntinel@localhost",
            "nats://u:12?s3ntinel@localhost:4222",
            "nats://u:s3ntinel@localhost:port",
            "nats://u:s3ntinel%ff@localhost",
            "nats://u:s3ntinel@[::1",
            "nats://a,nats://u:s3ntinel@b:c",
        ] {
            let error = Address::parse(url).map(|(address, _)| address).unwrap_err();
            assert!(matches!(error, Error::Config(_)));
            for text in [error.to_string(), format!("{error:?}")] {
                assert!(!text.contains("ntinel"), "{url}: {text}");
                assert!(text.contains("percent-encoded"), "{url}: {text}");
            }
        }
    }

    #[test]
    fn the_address_has_neither_password_nor_token() {
        let shown = |url| Address::parse(url).unwrap().0.to_string();
        assert_eq!(shown("tls://al%40ice:s3ntinel@broker.example"), "tls://broker.example:4222 (user `al@ice`)");
        assert_eq!(shown("s3ntinel@[fd00::7]:4223"), "nats://[fd00::7]:4223");
        assert_eq!(shown("nats://u:s3ntinel@a, b:4223"), "nats://a:4222, nats://b:4223 (user `u`)");
    }

    #[test]
    fn a_login_is_decoded() {
        let login = |url| Address::parse(url).unwrap().1.map(|Credentials(kind)| kind);
        let password = login("nats://u%3A:p%40%2F@h");
        assert!(matches!(password, Some(Kind::Password(user, word)) if (&*user, &*word) == ("u:", "p@/")));
        assert!(matches!(login("nats://t%2B@h"), Some(Kind::Token(token)) if token == "t+"));
        assert!(login("h:4222").is_none());
    }
}
