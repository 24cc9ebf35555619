//! Which certificates TLS accepts.

use crate::common;
use crate::common::{subscribe_options, url};
use idem_conformance::certificates::{self, Authority, acceptor, certificate, named, run_out};
use idem_conformance::{authority, texts};
use idem_core::{Error, Source};
use idem_rabbitmq::RabbitMq;
use idem_services::Secure;
use rcgen::{CertificateParams, KeyPair};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

const SENTINEL: &str = "s3ntinel";

fn ca() -> Authority {
    certificates::authority("a private CA")
}

/// Runs a TLS server with such a certificate that forwards everything to `target`. With `clients`, it requires a client
/// certificate from that authority.
async fn server(ca: &Authority, params: CertificateParams, clients: Option<&Authority>, target: String) -> u16 {
    let acceptor = acceptor(ca, params, clients);
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

async fn refused(port: u16, pem: Option<String>, why: &str) {
    let options = RabbitMq::options(format!("amqps://u:{SENTINEL}@localhost:{port}/%2f"));
    let options = if let Some(pem) = pem { options.tls_ca(pem) } else { options };
    let error = options.connect().await.unwrap_err();
    let said = texts(&error);
    assert!(matches!(error, Error::Broker { .. }), "{said}");
    assert!(said.contains(".tls_ca(pem)") && !said.contains(SENTINEL), "{said}");
    assert!(said.to_lowercase().contains(why), "{why}: {said}");
}

#[tokio::test]
async fn a_server_with_a_certificate_of_the_private_ca_is_accepted() {
    let Some(url) = url() else { return };
    let ca = ca();
    let port = server(&ca, named("localhost"), None, authority(&url).to_owned()).await;
    let url = url.replacen("amqp://", "amqps://", 1).replacen(authority(&url), &format!("localhost:{port}"), 1);
    let rabbit = RabbitMq::options(url).tls_ca(ca.pem()).connect().await.unwrap();
    let name = format!("idem-test-tls-{}", std::process::id());
    let mut queue = rabbit.declare(&name).await.unwrap();
    queue.subscribe(subscribe_options(1)).await.unwrap();
    queue.close().await;
    let world = common::World { queue: name, ..common::World::empty().await.unwrap() };
    world.delete().await;
}

#[tokio::test]
async fn a_server_with_a_certificate_of_an_unknown_ca_is_refused() {
    let port = server(&ca(), named("localhost"), None, String::new()).await;
    refused(port, None, "unknownissuer").await;
    // The same name with another key.
    refused(port, Some(ca().pem()), "badsignature").await;
}

#[tokio::test]
async fn a_server_with_a_certificate_for_another_name_is_refused() {
    let ca = ca();
    let port = server(&ca, named("other.example"), None, String::new()).await;
    refused(port, Some(ca.pem()), "other.example").await;
}

#[tokio::test]
async fn a_server_with_a_certificate_that_has_run_out_is_refused() {
    let ca = ca();
    let port = server(&ca, run_out("localhost"), None, String::new()).await;
    refused(port, Some(ca.pem()), "expired").await;
}

#[tokio::test]
async fn a_server_without_tls_is_refused() {
    let Some(url) = url() else { return };
    let port = authority(&url).rsplit(':').next().unwrap().parse().unwrap();
    refused(port, Some(ca().pem()), "tls").await;
}

#[tokio::test]
async fn a_ca_without_tls_is_refused() {
    let error = RabbitMq::options("amqp://localhost").tls_ca(ca().pem()).connect().await.unwrap_err();
    assert!(matches!(&error, Error::Config(text) if text.contains("amqps://")), "{error:?}");
}

#[tokio::test]
async fn an_invalid_ca_is_refused() {
    for pem in [String::new(), "nonsense".to_owned(), KeyPair::generate().unwrap().serialize_pem()] {
        let error = RabbitMq::options("amqps://localhost").tls_ca(pem).connect().await.unwrap_err();
        assert!(matches!(&error, Error::Config(text) if text.contains("BEGIN CERTIFICATE")), "{error:?}");
    }
}

/// Returns the URL of the shared server behind a TLS server that requires client certificates from `clients`.
async fn asking(url: &str, ca: &Authority, clients: &Authority) -> String {
    let port = server(ca, named("localhost"), Some(clients), authority(url).to_owned()).await;
    url.replacen("amqp://", "amqps://", 1).replacen(authority(url), &format!("localhost:{port}"), 1)
}

#[tokio::test]
async fn a_certificate_is_sent_with_the_password_if_the_url_has_one() {
    let Some(url) = url() else { return };
    let (servers, clients) = (ca(), ca());
    let (client, key) = certificate(&clients, named("billing"));
    let url = asking(&url, &servers, &clients).await;
    let options = RabbitMq::options(url).tls_ca(servers.pem()).tls_identity(client, key);
    let rabbit = options.connect().await.unwrap();
    // The connection that reads the server's version presents it too.
    let world = common::World::new().await.unwrap();
    rabbit.queue(&world.queue).await.unwrap();
}

#[tokio::test]
async fn a_server_that_does_not_take_the_certificate_is_named_with_the_remedy() {
    let Some(url) = url() else { return };
    let (servers, clients, others) = (ca(), ca(), ca());
    let url = asking(&url, &servers, &clients).await;
    let of_another = certificate(&others, named("billing"));
    let expired = certificate(&clients, run_out("billing"));
    for client in [None, Some(of_another), Some(expired)] {
        let options = RabbitMq::options(&url).tls_ca(servers.pem());
        let (options, key) = match client {
            None => (options, SENTINEL.to_owned()),
            Some((client, key)) => (options.tls_identity(client, key.clone()), key),
        };
        let error = options.connect().await.unwrap_err();
        let said = texts(&error);
        assert!(matches!(error, Error::Broker { .. }), "{said}");
        assert!(said.contains(".tls_identity(") && said.contains("localhost"), "{said}");
        assert!(!said.contains(&key), "{said}");
    }
}

#[tokio::test]
async fn a_certificate_without_its_key_is_refused_and_the_key_is_not_shown() {
    let ca = ca();
    let ((one, own), (_, other)) = (certificate(&ca, named("billing")), certificate(&ca, named("billing")));
    let damaged = own.replacen("PRIVATE KEY", "SECRET", 2);
    for (chain, key, expected) in [
        (&one, &other, "TLS cannot be set up"),
        (&one, &damaged, "BEGIN PRIVATE KEY"),
        (&own, &own, "BEGIN CERTIFICATE"),
    ] {
        let options =
            RabbitMq::options("amqps://localhost").tls_ca(ca.pem()).tls_identity(chain.as_str(), key.as_str());
        let error = options.connect().await.unwrap_err();
        let said = texts(&error);
        assert!(matches!(&error, Error::Config(text) if text.contains(expected)), "{said}");
        let secret = key.lines().nth(1).unwrap();
        assert!(!said.contains(secret), "{said}");
    }
    let plain = RabbitMq::options("amqp://localhost").tls_identity(one, own).connect().await;
    assert!(matches!(&plain, Err(Error::Config(text)) if text.contains("amqps://")), "{plain:?}");
}

/// Uses a separate RabbitMQ that accepts no other login. Both lapin's connections and those that read raw bytes log in
/// with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_the_login_if_the_url_names_no_user() {
    let Some(_) = url() else { return };
    let (servers, clients) = (ca(), ca());
    let (authority, (chain, key)) = (clients.pem(), certificate(&servers, named("localhost")));
    let started = tokio::task::spawn_blocking(move || {
        idem_services::RabbitMq::start_secure(Secure {
            authority: &authority,
            certificate: &chain,
            key: &key,
            user: "billing",
        })
    });
    let instance = started.await.unwrap().unwrap();
    let connect = async |name: &str| {
        let (client, key) = certificate(&clients, named(name));
        let options = RabbitMq::options(instance.url()).tls_ca(servers.pem());
        options.tls_identity(client, key).connect().await
    };
    let mut queue = connect("billing").await.unwrap().declare("orders").await.unwrap();
    queue.subscribe(subscribe_options(1)).await.unwrap();
    queue.close().await;

    let refused = connect("somebody").await.unwrap_err();
    let said = texts(&refused);
    assert!(said.contains("ssl_cert_login_from") && said.contains("client's certificate"), "{said}");
}
