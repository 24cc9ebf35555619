//! TLS: which certificates are accepted.
#![cfg(feature = "ssl")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod common;

use std::sync::Arc;

use common::relay::{pass, places};
use common::{World, next, options, terms, texts};
use idem_core::{Error, Source};
use idem_kafka::Kafka;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer};

fn ca() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    // By default it is that of the certificates, too, which OpenSSL takes for their own issuers then.
    params.distinguished_name.push(DnType::CommonName, "a private CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Speaks TLS with a certificate for `name`, and passes all on to the broker.
async fn server(ca: &CertifiedIssuer<'_, KeyPair>, name: &str, broker: &str) -> String {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, ca).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // A name, because librdkafka compares an address with the names in a certificate only. It is as long as the address.
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
    world.publish("x").await;
    let kafka = options(&broker).tls_ca(ca.pem()).connect().await.unwrap();
    let mut topic = kafka.topic(&world.topic).await.unwrap().group(&world.group);
    topic.open(terms(1)).await.unwrap();
    assert_eq!(next(&mut topic).await.0.payload(), "x");
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
async fn a_broker_without_tls_is_refused() {
    let Some(world) = World::empty().await else { return };
    let error = Kafka::options(&world.brokers).tls().connect().await.unwrap_err();
    assert!(texts(&error).contains("same security") || texts(&error).contains("speaks TLS"), "{error:?}");
}

#[tokio::test]
async fn a_ca_that_is_none_is_refused() {
    for pem in ["nonsense", ""] {
        let error = Kafka::options("127.0.0.1:1").tls_ca(pem).connect().await.unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{error:?}");
    }
}
