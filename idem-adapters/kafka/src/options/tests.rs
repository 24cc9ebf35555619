//! Tests of the options, without a broker.

use super::*;

const SENTINEL: &str = "s3ntinel";

fn options(brokers: &str) -> Options {
    Options::new(brokers.to_owned())
}

fn refused(options: Options) -> String {
    let error = options.config().unwrap_err();
    assert!(matches!(error, Error::Config(_)), "{error:?}");
    let texts = format!("{error} {error:?}");
    assert!(!texts.contains(SENTINEL), "{texts}");
    texts
}

#[test]
fn a_setting_that_would_break_the_guarantee_is_refused() {
    for name in [
        "enable.auto.commit",
        "enable.auto.offset.store",
        "auto.offset.reset",
        "partition.assignment.strategy",
        "isolation.level",
        "group.id",
        "group.protocol",
    ] {
        let said = refused(options("h:1").property(name, SENTINEL));
        assert!(said.contains(name) && said.contains("idem's own"), "{said}");
    }
    let said = refused(options("h:1").property("auto.offset.reset", "earliest"));
    assert!(said.contains(".start("), "{said}");
}

#[test]
fn a_setting_that_does_not_exist_or_cannot_be_is_named_without_its_value() {
    let said = refused(options("h:1").property("no.such.setting", SENTINEL));
    assert!(said.contains("no.such.setting"), "{said}");
    let said = refused(options("h:1").property("session.timeout.ms", SENTINEL));
    assert!(said.contains("session.timeout.ms"), "{said}");
    let said = refused(options("h:1").property("client.id", "s3ntinel\0"));
    assert!(said.contains("NUL"), "{said}");
}

#[test]
fn a_refused_address_is_not_shown() {
    let options = options("h:1,user:s3ntinel@h:2");
    assert!(!format!("{options:?}").contains(SENTINEL), "{options:?}");
    refused(options);
}

#[test]
fn a_broker_without_an_address_is_refused() {
    for brokers in ["", "h:1,,h:2", " "] {
        assert!(refused(options(brokers)).contains("host:port"));
    }
}

#[cfg(not(feature = "ssl"))]
#[test]
fn tls_is_refused_where_it_was_not_built_in() {
    let token = async || Ok(Token::new(SENTINEL, "", std::time::SystemTime::now()));
    assert!(refused(options("h:1").sasl_oauthbearer(token)).contains("kafka-ssl"));
    assert!(refused(options("h:1").tls()).contains("kafka-ssl"));
    assert!(refused(options("h:1").tls_ca(SENTINEL)).contains("kafka-ssl"));
    let said = refused(options("h:1").property("ssl.key.password", SENTINEL));
    assert!(said.contains("kafka-ssl"), "{said}");
}

#[test]
fn two_logins_are_refused() {
    let credentials = async || Ok(Credentials::new("user", SENTINEL));
    let token = async || Ok(Token::new(SENTINEL, "", std::time::SystemTime::now()));
    for two in [
        options("h:1").sasl_plain("user", SENTINEL).sasl_credentials(credentials),
        options("h:1").sasl_plain("user", SENTINEL).sasl_oauthbearer(token),
        options("h:1").sasl_credentials(credentials).sasl_oauthbearer(token),
        options("h:1").sasl_oauthbearer(token).sasl_credentials(credentials),
    ] {
        let said = refused(two);
        assert!(said.contains("two logins") && said.contains("`.sasl_credentials(..)`"), "{said}");
    }
}

#[test]
fn a_callback_may_be_given_again() {
    let credentials = async || Ok(Credentials::new("user", SENTINEL));
    options("h:1").sasl_credentials(credentials).sasl_credentials(credentials).config().unwrap();
}

#[cfg(feature = "ssl")]
#[test]
fn an_invalid_identity_is_refused_and_not_repeated() {
    let said = refused(options("h:1").tls_identity("nonsense", SENTINEL));
    assert!(said.contains(".tls_identity"), "{said}");
}
