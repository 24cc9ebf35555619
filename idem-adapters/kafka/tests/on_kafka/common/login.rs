//! The broker's listeners that require a login: user `idem` with password `idem`, or an unsigned token.

use std::time::{Duration, SystemTime};

use idem_kafka::Token;
use rdkafka::admin::{AdminOptions, ConfigResource, ResourceSpecifier};

use super::World;

/// A listener with TLS.
pub(crate) struct Secure {
    /// `localhost`, which is the only name in the certificate, and the port.
    pub(crate) address: String,
    /// The certificate of the authority, as PEM.
    pub(crate) ca: String,
}

impl World {
    /// The address of the listener without TLS that requires a login with this mechanism, if there is one.
    pub(crate) async fn login(&self, mechanism: &str) -> Option<String> {
        listener(&self.broker_config().await, "SASL_PLAINTEXT", mechanism)
    }

    /// The listener with TLS that requires a login with this mechanism, if there is one on this machine.
    pub(crate) async fn secure_login(&self, mechanism: &str) -> Option<Secure> {
        let config = self.broker_config().await;
        let address = listener(&config, "SASL_SSL", mechanism)?;
        match std::fs::read_to_string(value(&config, "ssl.truststore.location")) {
            Ok(ca) => Some(Secure { address, ca }),
            Err(error) => {
                println!("skipped: cannot read the authority of the broker's listener SASL_SSL: {error}");
                None
            }
        }
    }

    async fn broker_config(&self) -> ConfigResource {
        let asked = [ResourceSpecifier::Broker(1)];
        self.admin.describe_configs(&asked, &AdminOptions::new()).await.unwrap().remove(0).unwrap()
    }
}

fn listener(config: &ConfigResource, protocol: &str, mechanism: &str) -> Option<String> {
    let listeners = value(config, "advertised.listeners");
    let found = listeners.split(',').find_map(|listener| listener.strip_prefix(protocol)?.strip_prefix("://"));
    let found = found.filter(|_| value(config, "sasl.enabled.mechanisms").split(',').any(|one| one == mechanism));
    if found.is_none() {
        println!("skipped: the broker has no listener {protocol} for {mechanism}");
    }
    found.map(str::to_owned)
}

fn value(config: &ConfigResource, name: &str) -> String {
    config.get(name).and_then(|entry| entry.value.clone()).unwrap_or_default()
}

/// An unsigned token, for a broker that accepts such tokens.
pub(crate) fn token(lifetime: Duration) -> Token {
    let now = SystemTime::now();
    let seconds = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    let claims =
        format!("{{\"sub\":\"billing\",\"iat\":{:.3},\"exp\":{:.3}}}", seconds(now) - 1.0, seconds(now + lifetime));
    let token = format!("{}.{}.", base64(br#"{"alg":"none"}"#), base64(claims.as_bytes()));
    Token::new(token, "billing", now + lifetime)
}

/// Base64 for URLs, without padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digits = bytes.chunks(3).flat_map(|chunk| {
        let number = (0..3).fold(0, |number, at| number << 8 | usize::from(chunk.get(at).copied().unwrap_or(0)));
        (0..=chunk.len()).map(move |at| char::from(DIGITS[number >> (18 - 6 * at) & 63]))
    });
    digits.collect()
}
