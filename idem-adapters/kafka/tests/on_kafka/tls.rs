//! Which certificates are accepted with TLS.
#![cfg(feature = "ssl")]

use crate::common::relay::{pass, places};
use crate::common::{World, options};
use idem_conformance::certificates::{self, Authority, acceptor, identity, named, run_out};
use idem_conformance::texts;
use idem_core::Error;
use idem_kafka::Kafka;
use rcgen::{CertificateParams, KeyPair};
use tokio::net::{TcpListener, TcpStream};

fn ca() -> Authority {
    certificates::authority("a private CA")
}

/// Serves TLS with a certificate for `name`, and forwards all data to the broker.
async fn server(ca: &Authority, name: &str, broker: &str) -> String {
    serve(ca, named(name), None, broker).await
}

/// Serves TLS with this certificate. If `clients` is given, accepts only clients with a certificate from that CA.
async fn serve(ca: &Authority, params: CertificateParams, clients: Option<&Authority>, broker: &str) -> String {
    let acceptor = acceptor(ca, params, clients);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // A name, because librdkafka compares an address only with the names in a certificate. It is as long as the
    // address.
    let (said, mut instead) = places(broker, port);
    instead[..9].copy_from_slice(b"localhost");
    let (broker, places) = (broker.to_owned(), (said, instead));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (acceptor, broker, places) = (acceptor.clone(), broker.clone(), places.clone());
            tokio::spawn(async move {
                let Ok(client) = acceptor.accept(client).await else { return };
                pass(client, TcpStream::connect(broker).await.unwrap(), &places).await;
            });
        }
    });
    format!("localhost:{port}")
}

async fn refused(broker: &str, pem: Option<String>) {
    let options = Kafka::options(broker).tls();
    let options = if let Some(pem) = pem { options.tls_ca(pem) } else { options };
    let error = options.connect().await.unwrap_err();
    let said = texts(&error);
    assert!(matches!(error, Error::Broker { .. }) && said.contains(".tls_ca(pem)"), "{said}");
}

#[tokio::test]
async fn a_broker_with_a_certificate_of_the_private_ca_is_accepted() {
    let Some(world) = World::new().await else { return };
    let ca = ca();
    let broker = server(&ca, "localhost", &world.brokers).await;
    world.consume(&options(&broker).tls_ca(ca.pem()).connect().await.unwrap()).await;
}

#[tokio::test]
async fn a_broker_with_a_certificate_of_an_unknown_ca_or_for_another_name_is_refused() {
    let Some(world) = World::empty().await else { return };
    let ca_of_another = ca().pem();
    let ca = ca();
    let broker = server(&ca, "localhost", &world.brokers).await;
    refused(&broker, None).await;
    refused(&broker, Some(ca_of_another)).await;
    refused(&server(&ca, "other.example", &world.brokers).await, Some(ca.pem())).await;
}

#[tokio::test]
async fn a_broker_with_a_certificate_that_has_run_out_is_refused() {
    let Some(world) = World::empty().await else { return };
    let ca = ca();
    refused(&serve(&ca, run_out("localhost"), None, &world.brokers).await, Some(ca.pem())).await;
}

#[tokio::test]
async fn a_client_with_a_certificate_consumes_where_brokers_ask_for_one() {
    let Some(world) = World::new().await else { return };
    let ca = ca();
    let broker = serve(&ca, named("localhost"), Some(&ca), &world.brokers).await;
    let (certificate, key) = identity(&ca, named("billing.example"));
    let kafka = options(&broker).tls_ca(ca.pem()).tls_identity(certificate, key).connect().await.unwrap();
    world.consume(&kafka).await;
}

#[tokio::test]
async fn a_client_without_a_valid_certificate_gets_an_error_that_says_so() {
    let Some(world) = World::empty().await else { return };
    let (ours, other) = (ca(), ca());
    let broker = serve(&ours, named("localhost"), Some(&ours), &world.brokers).await;
    let stranger = identity(&other, named("billing.example"));
    for identity in [None, Some(stranger), Some(identity(&ours, run_out("billing.example")))] {
        let key = identity.as_ref().map_or("no key", |(_, key)| key).lines().nth(1).unwrap_or("no key").to_owned();
        let mut options = Kafka::options(&broker).tls_ca(ours.pem());
        if let Some((certificate, key)) = identity {
            options = options.tls_identity(certificate, key);
        }
        assert!(!format!("{options:?}").contains(&key));
        let error = options.connect().await.unwrap_err();
        let said = texts(&error);
        assert!(matches!(error, Error::Broker { .. }), "{said}");
        assert!(said.contains(".tls_identity(certificate, key)") && !said.contains(&key), "{said}");
    }
}

#[tokio::test]
async fn a_key_of_another_certificate_is_refused_and_not_repeated() {
    let (certificate, _) = identity(&ca(), named("billing.example"));
    let other = KeyPair::generate().unwrap().serialize_pem();
    let error = Kafka::options("127.0.0.1:1").tls_identity(certificate, other.as_str()).connect().await.unwrap_err();
    let said = texts(&error);
    assert!(matches!(error, Error::Config(_)) && said.contains("key"), "{said}");
    assert!(!said.contains(other.lines().nth(1).unwrap()), "{said}");
}

#[tokio::test]
async fn a_broker_without_tls_is_refused() {
    let Some(world) = World::empty().await else { return };
    let error = Kafka::options(&world.brokers).tls().connect().await.unwrap_err();
    assert!(texts(&error).contains("same security") || texts(&error).contains("speaks TLS"), "{error:?}");
}

#[tokio::test]
async fn an_invalid_ca_is_refused() {
    for pem in ["nonsense", ""] {
        let error = Kafka::options("127.0.0.1:1").tls_ca(pem).connect().await.unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{error:?}");
    }
}
