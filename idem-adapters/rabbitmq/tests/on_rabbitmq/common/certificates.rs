//! A temporary CA, its certificates, and a TLS server.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto::ring, pki_types::PrivateKeyDer};

pub(crate) type Authority = CertifiedIssuer<'static, KeyPair>;

pub(crate) fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate for a server with this name, or for this user.
pub(crate) fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// Makes the certificate expired.
pub(crate) fn run_out(mut params: CertificateParams) -> CertificateParams {
    params.not_before = rcgen::date_time_ymd(2001, 1, 1);
    params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    params
}

pub(crate) struct Certificate {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Certificate {
    pub(crate) fn of(authority: &Authority, params: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        Self { certificate: params.signed_by(&key, authority).unwrap(), key }
    }

    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
    }

    pub(crate) fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }
}

/// Runs a TLS server with such a certificate that forwards everything to `target`. With `clients`, it requires a client
/// certificate from that authority.
pub(crate) async fn server(
    ca: &Authority,
    params: CertificateParams,
    clients: Option<&Authority>,
    target: String,
) -> u16 {
    let provider = Arc::new(ring::default_provider());
    let Certificate { certificate, key } = Certificate::of(ca, params);
    let config = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let config = match clients {
        None => config.with_no_client_auth(),
        Some(clients) => {
            let mut roots = RootCertStore::empty();
            roots.add(clients.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            config.with_client_cert_verifier(verifier)
        }
    };
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = config.with_single_cert(vec![certificate.der().clone()], key).unwrap();
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
