//! TLS: which certificates are accepted.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::sync::Arc;

use common::relay::authority;
use common::{terms, texts, url};
use idem_core::{Error, Source};
use idem_rabbitmq::RabbitMq;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer};

const SENTINEL: &str = "s3ntinel";

fn ca() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Speaks TLS with a certificate for `name`, and passes all on to `target`.
async fn server(ca: &CertifiedIssuer<'_, KeyPair>, params: CertificateParams, target: String) -> u16 {
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, ca).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (acceptor, target) = (acceptor.clone(), target.clone());
            tokio::spawn(async move {
                let Ok(mut client) = acceptor.accept(client).await else { return };
                let mut server = TcpStream::connect(target).await.unwrap();
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    port
}

fn named(name: &str) -> CertificateParams {
    CertificateParams::new(vec![name.to_owned()]).unwrap()
}

async fn refused(port: u16, pem: Option<String>) {
    let options = RabbitMq::options(format!("amqps://u:{SENTINEL}@localhost:{port}/%2f"));
    let options = if let Some(pem) = pem { options.tls_ca(pem) } else { options };
    let error = options.connect().await.unwrap_err();
    let said = texts(&error);
    assert!(matches!(error, Error::Broker { .. }), "{said}");
    assert!(said.contains(".tls_ca(pem)") && !said.contains(SENTINEL), "{said}");
}

#[tokio::test]
async fn a_server_with_a_certificate_of_the_private_ca_is_accepted() {
    let Some(url) = url() else { return };
    let ca = ca();
    let port = server(&ca, named("localhost"), authority(&url).to_owned()).await;
    let url = url.replacen("amqp://", "amqps://", 1).replacen(authority(&url), &format!("localhost:{port}"), 1);
    let rabbit = RabbitMq::options(url).tls_ca(ca.pem()).connect().await.unwrap();
    let name = format!("idem-test-tls-{}", std::process::id());
    let mut queue = rabbit.declare(&name).await.unwrap();
    queue.open(terms(1)).await.unwrap();
    queue.close().await;
    let world = common::World { queue: name, ..common::World::empty().await.unwrap() };
    world.delete().await;
}

#[tokio::test]
async fn a_server_with_a_certificate_of_an_unknown_ca_is_refused() {
    let port = server(&ca(), named("localhost"), String::new()).await;
    refused(port, None).await;
    refused(port, Some(ca().pem())).await;
}

#[tokio::test]
async fn a_server_with_a_certificate_for_another_name_is_refused() {
    let ca = ca();
    let port = server(&ca, named("other.example"), String::new()).await;
    refused(port, Some(ca.pem())).await;
}

#[tokio::test]
async fn a_server_with_a_certificate_that_has_run_out_is_refused() {
    let ca = ca();
    let mut params = named("localhost");
    params.not_before = rcgen::date_time_ymd(2001, 1, 1);
    params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    let port = server(&ca, params, String::new()).await;
    refused(port, Some(ca.pem())).await;
}

#[tokio::test]
async fn a_server_without_tls_is_refused() {
    let Some(url) = url() else { return };
    let port = authority(&url).rsplit(':').next().unwrap().parse().unwrap();
    refused(port, Some(ca().pem())).await;
}

#[tokio::test]
async fn a_ca_without_tls_is_refused() {
    let error = RabbitMq::options("amqp://localhost").tls_ca(ca().pem()).connect().await.unwrap_err();
    assert!(matches!(&error, Error::Refused(text) if text.contains("amqps://")), "{error:?}");
}

#[tokio::test]
async fn a_ca_that_is_none_is_refused() {
    for pem in [String::new(), "nonsense".to_owned(), KeyPair::generate().unwrap().serialize_pem()] {
        let error = RabbitMq::options("amqps://localhost").tls_ca(pem).connect().await.unwrap_err();
        assert!(matches!(&error, Error::Refused(text) if text.contains("BEGIN CERTIFICATE")), "{error:?}");
    }
}
