//! Checks broker addresses.

use idem_core::Error;

/// Checks the address of a broker. For an invalid one, librdkafka would only report that it cannot be resolved. The
/// error text does not contain the address, since a URL may contain a password.
pub(crate) fn check(broker: &str) -> Result<(), Error> {
    // librdkafka accepts these in front of an address, as Kafka's own settings do.
    const PROTOCOLS: [&str; 4] = ["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"];
    let scheme = broker.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    let why = if broker.is_empty() {
        "the list of brokers has an empty address: write host:port,host:port".to_owned()
    } else if let Some(scheme) = scheme.filter(|scheme| !PROTOCOLS.contains(&scheme.as_str())) {
        format!(
            "the address of a Kafka broker is no URL, and this one begins with {scheme}://: write host:port,host:port"
        )
    } else if broker.contains('@') {
        "the address of a Kafka broker has no user and no password: write host:port, and give the login by \
         `.sasl_plain(user, password)`"
            .to_owned()
    } else {
        return Ok(());
    };
    Err(Error::Config(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_a_url_is_refused_and_says_what_to_write() {
        for broker in ["kafka://h:9092", "tcp://h:9093", "kafka://user:s3ntinel@h:9092", ""] {
            let text = check(broker).unwrap_err().to_string();
            assert!(text.contains("write host:port,host:port") && !text.contains("s3ntinel"), "{text}");
        }
        let text = check("user:s3ntinel@h:9092").unwrap_err().to_string();
        assert!(text.contains("write host:port") && text.contains(".sasl_plain(user, password)"), "{text}");
        for broker in ["h:9092", "h", "SASL_SSL://h:9092", "ssl://i:9093", "[::1]:9092"] {
            assert!(check(broker).is_ok(), "{broker}");
        }
    }
}
