//! TLS: whose certificates are accepted.

use std::sync::Arc;

use async_nats::rustls::crypto::{CryptoProvider, ring};
use async_nats::rustls::pki_types::pem::PemObject;
use async_nats::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use async_nats::rustls::{ClientConfig, RootCertStore};
use idem_core::Error;

/// TLS that accepts a certificate of a CA in `ca`, or else of a CA of the system, for the name in the URL, and shows the
/// certificate and key of `identity` to a server that asks.
pub(crate) fn client(ca: Option<&[u8]>, identity: Option<(&[u8], &[u8])>) -> Result<ClientConfig, Error> {
    let refused = |what: String| Error::Config(format!("TLS cannot be set up: {what}"));
    let mut roots = RootCertStore::empty();
    let certificates = match ca {
        None => rustls_native_certs::load_native_certs().certs,
        Some(pem) => CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().unwrap_or_default(),
    };
    let (accepted, _) = roots.add_parsable_certificates(certificates);
    if accepted == 0 {
        return Err(refused(match ca {
            None => "this system has no certificates: install them (ca-certificates), or use .tls_ca(pem)".to_owned(),
            Some(_) => "the text given to .tls_ca holds no certificate: give it the content of a .pem file with BEGIN \
                        CERTIFICATE in it"
                .to_owned(),
        }));
    }
    // The process's own where it has one, and else ring: left to itself, rustls panics where two were compiled in.
    let provider = CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()));
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(error.to_string()))?;
    let builder = builder.with_root_certificates(roots);
    let Some((certificate, key)) = identity else { return Ok(builder.with_no_client_auth()) };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate).filter_map(Result::ok).collect();
    if chain.is_empty() {
        return Err(refused(
            "the first text given to .tls_identity holds no certificate: give it the content of a .pem file with BEGIN \
             CERTIFICATE in it"
                .to_owned(),
        ));
    }
    // Errors of the parser are not passed on: they may repeat the key.
    let pair = PrivateKeyDer::from_pem_slice(key).ok().and_then(|key| builder.with_client_auth_cert(chain, key).ok());
    pair.ok_or_else(|| {
        refused(
            "the second text given to .tls_identity is not the private key of the certificate: give it the content of the \
             .pem file with BEGIN PRIVATE KEY in it, without a password"
                .to_owned(),
        )
    })
}
