//! TLS: which certificates are accepted.

use crate::common;
use crate::common::server::Server;
use crate::common::{subscribe_options, url};
use idem_conformance::certificates::{self, Authority, certificate, identity, named, run_out};
use idem_conformance::texts;
use idem_core::{Error, Source};
use idem_nats::Nats;
use rcgen::{CertificateParams, KeyPair};

const SENTINEL: &str = "s3ntinel";

fn ca() -> Authority {
    certificates::authority("a private CA")
}

/// Starts a TLS server with this certificate.
fn server(ca: &Authority, params: CertificateParams) -> Option<Server> {
    let (certificate, key) = certificate(ca, params);
    let config = "jetstream: {}\ntls: { cert_file: \"$home/cert.pem\", key_file: \"$home/key.pem\" }";
    Server::start_with(config, &[("cert.pem", &certificate), ("key.pem", &key)])
}

/// Starts a TLS server that requires a client certificate of the same CA.
fn verifying(ca: &Authority) -> Option<Server> {
    let (certificate, key) = certificate(ca, named("localhost"));
    let config = "jetstream: {}\ntls: { cert_file: \"$home/cert.pem\", key_file: \"$home/key.pem\", ca_file: \
                  \"$home/ca.pem\", verify_and_map: true }\nauthorization: { users: [ { user: \"billing.example\" } ] }";
    let files = [("cert.pem", &*certificate), ("key.pem", &key), ("ca.pem", &ca.pem())];
    Server::start_with(config, &files)
}

async fn refused(port: u16, pem: Option<String>) {
    let options = Nats::options(format!("tls://u:{SENTINEL}@localhost:{port}"));
    let options = if let Some(pem) = pem { options.tls_ca(pem) } else { options };
    let error = options.connect().await.unwrap_err();
    let said = texts(&error);
    assert!(matches!(error, Error::Broker { .. }), "{said}");
    assert!(said.contains(".tls_ca(pem)") && !said.contains(SENTINEL), "{said}");
}

#[tokio::test]
async fn a_server_with_a_certificate_of_the_private_ca_is_accepted() {
    let ca = ca();
    let Some(server) = server(&ca, named("localhost")) else { return };
    let nats = Nats::options(format!("tls://localhost:{}", server.port)).tls_ca(ca.pem()).connect().await.unwrap();
    let error = nats.stream("ORDERS").await.unwrap_err().to_string();
    assert!(error.contains("does not exist"), "{error}");
}

#[tokio::test]
async fn a_server_with_a_certificate_of_an_unknown_ca_is_refused() {
    let Some(server) = server(&ca(), named("localhost")) else { return };
    refused(server.port, None).await;
    refused(server.port, Some(ca().pem())).await;
    // The same if the URL leaves TLS to the server.
    let error = Nats::connect(format!("nats://localhost:{}", server.port)).await.unwrap_err();
    assert!(texts(&error).contains(".tls_ca(pem)"), "{}", texts(&error));
}

#[tokio::test]
async fn a_server_with_a_certificate_for_another_name_is_refused() {
    let ca = ca();
    let Some(server) = server(&ca, named("other.example")) else { return };
    refused(server.port, Some(ca.pem())).await;
}

#[tokio::test]
async fn a_server_with_a_certificate_that_has_run_out_is_refused() {
    let ca = ca();
    let Some(server) = server(&ca, run_out("localhost")) else { return };
    refused(server.port, Some(ca.pem())).await;
}

#[tokio::test]
async fn a_server_without_tls_is_refused() {
    let Some(url) = url() else { return };
    let port = idem_conformance::authority(&url).rsplit(':').next().unwrap().parse().unwrap();
    refused(port, Some(ca().pem())).await;
}

#[tokio::test]
async fn a_ca_without_tls_is_refused() {
    let error = Nats::options("nats://localhost").tls_ca(ca().pem()).connect().await.unwrap_err();
    assert!(matches!(&error, Error::Config(text) if text.contains("tls://")), "{error:?}");
}

#[tokio::test]
async fn an_invalid_ca_is_refused() {
    for pem in [String::new(), "nonsense".to_owned(), KeyPair::generate().unwrap().serialize_pem()] {
        let error = Nats::options("tls://localhost").tls_ca(pem).connect().await.unwrap_err();
        assert!(matches!(&error, Error::Config(text) if text.contains("BEGIN CERTIFICATE")), "{error:?}");
    }
}

#[tokio::test]
async fn a_source_speaks_tls_too() {
    let ca = ca();
    let Some(server) = server(&ca, named("localhost")) else { return };
    let url = format!("tls://localhost:{}", server.port);
    let file = server.home.path().join("ca.pem");
    std::fs::write(&file, ca.pem()).unwrap();
    let client = async_nats::ConnectOptions::new().add_root_certificates(file).connect(&url).await.unwrap();
    let jetstream = async_nats::jetstream::new(client);
    let world = common::World { url: url.clone(), stream: "ORDERS".to_owned(), jetstream };
    world.make(|_| {}).await;
    world.publish("x").await;
    let nats = Nats::options(url).tls_ca(ca.pem()).connect().await.unwrap();
    let mut stream = nats.stream("ORDERS").await.unwrap();
    stream.subscribe(subscribe_options(1)).await.unwrap();
    assert_eq!(common::next(&mut stream).await.0.payload(), "x");
    stream.close().await;
}

#[tokio::test]
async fn a_client_with_a_certificate_is_known_by_it() {
    let ca = ca();
    let Some(server) = verifying(&ca) else { return };
    let (certificate, key) = identity(&ca, named("billing.example"));
    let options = Nats::options(format!("tls://localhost:{}", server.port)).tls_ca(ca.pem());
    let nats = options.tls_identity(certificate, key).connect().await.unwrap();
    let error = nats.stream("ORDERS").await.unwrap_err().to_string();
    assert!(error.contains("does not exist"), "{error}");
}

#[tokio::test]
async fn a_client_without_a_valid_certificate_gets_an_error_that_says_so() {
    let ca = ca();
    let Some(server) = verifying(&ca) else { return };
    let stranger = identity(&certificates::authority("another CA"), named("billing.example"));
    for identity in [None, Some(stranger), Some(identity(&ca, run_out("billing.example")))] {
        let key = identity.as_ref().map_or("no key", |(_, key)| key).lines().nth(1).unwrap_or("no key").to_owned();
        let mut options = Nats::options(format!("tls://localhost:{}", server.port)).tls_ca(ca.pem());
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
async fn an_invalid_identity_is_refused_and_not_repeated() {
    let ca = ca();
    let (certificate, key) = identity(&ca, named("billing.example"));
    let other = KeyPair::generate().unwrap().serialize_pem();
    for (certificate, key) in [("nonsense", &*key), (&*certificate, SENTINEL), (&*certificate, &*other)] {
        let options = Nats::options("tls://localhost").tls_ca(ca.pem()).tls_identity(certificate, key);
        let error = options.connect().await.unwrap_err();
        assert!(matches!(&error, Error::Config(text) if text.contains(".tls_identity")), "{error:?}");
        assert!(!texts(&error).contains(key.lines().last().unwrap()), "{error:?}");
    }
}
