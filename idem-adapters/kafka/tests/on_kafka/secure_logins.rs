//! Logins over TLS, on a listener of the broker itself.
#![cfg(feature = "ssl")]

use std::time::{Duration, SystemTime};

use crate::common::login::{Secure, token};
use crate::common::{LONG, World, options};
use idem_conformance::{certificates, texts};
use idem_core::Error;
use idem_kafka::{Credentials, Kafka, Options, Token};

const SENTINEL: &str = "s3ntinel";

fn scram(options: Options, mechanism: &str, password: &'static str) -> Options {
    let credentials = move || async move { Ok(Credentials::new("idem", password)) };
    options.sasl_credentials(credentials).property("sasl.mechanisms", mechanism)
}

/// The first handshakes of a broker that has just started can take longer than a connection may, on a busy machine.
async fn connected(options: impl Fn() -> Options) -> Kafka {
    for _ in 0..2 {
        if let Ok(kafka) = options().connect().await {
            return kafka;
        }
    }
    options().connect().await.unwrap()
}

/// The error of the connection, which must come soon and show no password.
async fn refused(options: Options) -> String {
    let shown = format!("{options:?}");
    let error = tokio::time::timeout(LONG, options.connect()).await.expect("it waits for ever").unwrap_err();
    let said = texts(&error);
    assert!(matches!(error, Error::Broker { .. }), "{said}");
    assert!(!said.contains(SENTINEL) && !shown.contains(SENTINEL), "{said}{shown}");
    said
}

#[tokio::test]
async fn a_login_by_scram_over_tls_consumes() {
    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let Some(world) = World::new().await else { return };
        let Some(Secure { address, ca }) = world.secure_login(mechanism).await else { return };
        world.consume(&connected(|| scram(options(&address).tls_ca(ca.as_str()), mechanism, "idem")).await).await;
    }
}

#[tokio::test]
async fn a_login_by_a_plain_password_over_tls_consumes() {
    let Some(world) = World::new().await else { return };
    let Some(Secure { address, ca }) = world.secure_login("PLAIN").await else { return };
    world.consume(&connected(|| options(&address).tls_ca(ca.as_str()).sasl_plain("idem", "idem")).await).await;
}

#[tokio::test]
async fn a_login_by_an_oauth_token_over_tls_consumes() {
    let Some(world) = World::new().await else { return };
    let Some(Secure { address, ca }) = world.secure_login("OAUTHBEARER").await else { return };
    let token = async || Ok(token(Duration::from_secs(600)));
    world.consume(&connected(|| options(&address).tls_ca(ca.as_str()).sasl_oauthbearer(token)).await).await;
}

#[tokio::test]
async fn a_wrong_password_over_tls_is_refused_and_not_shown() {
    let Some(world) = World::empty().await else { return };
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let Some(Secure { address, ca }) = world.secure_login(mechanism).await else { return };
        let said = refused(scram(Kafka::options(&address).tls_ca(ca), mechanism, SENTINEL)).await;
        assert!(said.contains("check user, password") && said.contains(&address), "{mechanism}: {said}");
    }
}

#[tokio::test]
async fn a_wrong_token_over_tls_is_refused_and_not_shown() {
    let Some(world) = World::empty().await else { return };
    let Some(Secure { address, ca }) = world.secure_login("OAUTHBEARER").await else { return };
    let later = SystemTime::now() + Duration::from_secs(600);
    let options = Kafka::options(&address).tls_ca(ca);
    let said = refused(options.sasl_oauthbearer(move || async move { Ok(Token::new(SENTINEL, "", later)) })).await;
    assert!(said.contains(".sasl_oauthbearer(..)") && said.contains(&address), "{said}");
}

#[tokio::test]
async fn a_broker_of_an_unknown_authority_or_under_another_name_is_refused_before_a_login() {
    let Some(world) = World::empty().await else { return };
    let Some(Secure { address, ca }) = world.secure_login("SCRAM-SHA-512").await else { return };
    let other = certificates::authority("another CA").pem();
    let by_number = address.replace("localhost", "127.0.0.1");
    for options in
        [Kafka::options(&address).tls(), Kafka::options(&address).tls_ca(other), Kafka::options(&by_number).tls_ca(ca)]
    {
        let said = refused(scram(options, "SCRAM-SHA-512", SENTINEL)).await;
        assert!(said.contains(".tls_ca(pem)") && !said.contains("password"), "{said}");
    }
}

#[tokio::test]
async fn a_login_without_tls_at_a_listener_with_tls_is_refused_with_a_hint() {
    let Some(world) = World::empty().await else { return };
    let Some(Secure { address, .. }) = world.secure_login("SCRAM-SHA-512").await else { return };
    let said = refused(scram(Kafka::options(&address), "SCRAM-SHA-512", SENTINEL)).await;
    assert!(said.contains("same security (plain, TLS, SASL)") && said.contains(&address), "{said}");
}
