//! Temporary authorities, their certificates, and TLS for a server.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto::ring, pki_types::PrivateKeyDer};

/// An authority that signs certificates.
pub type Authority = CertifiedIssuer<'static, KeyPair>;

/// Returns a new authority with this name. With the name and another key, it is taken for the known one.
pub fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate for a server with this name, or for this user.
pub fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// The same, which has run out.
pub fn run_out(name: &str) -> CertificateParams {
    let mut params = named(name);
    params.not_before = rcgen::date_time_ymd(2001, 1, 1);
    params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    params
}

/// Returns such a certificate and its key, as PEM.
pub fn certificate(authority: &Authority, params: CertificateParams) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, authority).unwrap().pem(), key.serialize_pem())
}

/// The same for a client only.
pub fn identity(authority: &Authority, mut params: CertificateParams) -> (String, String) {
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    certificate(authority, params)
}

/// Accepts TLS with such a certificate. With `clients`, it requires a client certificate of that authority.
pub fn acceptor(authority: &Authority, params: CertificateParams, clients: Option<&Authority>) -> TlsAcceptor {
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    let provider = Arc::new(ring::default_provider());
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
    TlsAcceptor::from(Arc::new(config))
}
