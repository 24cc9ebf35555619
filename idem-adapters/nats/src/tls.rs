//! TLS: the accepted CAs, and the client's certificate.

use std::sync::Arc;

use async_nats::rustls::crypto::{CryptoProvider, ring};
use async_nats::rustls::pki_types::pem::PemObject;
use async_nats::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use async_nats::rustls::{ClientConfig, RootCertStore};
use idem_core::Error;

/// Returns a TLS configuration. It accepts a certificate for the name in the URL from a CA in `ca`, or from a CA of the
/// system if `ca` is `None`. It presents the certificate of `identity` to a server that requests one.
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
    // Uses the provider of the process if it has one, otherwise ring: by itself, rustls panics if two are compiled in.
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
    // The parser's errors are not passed on, because they may contain the key.
    let pair = PrivateKeyDer::from_pem_slice(key).ok().and_then(|key| builder.with_client_auth_cert(chain, key).ok());
    pair.ok_or_else(|| {
        refused(
            "the second text given to .tls_identity is not the private key of the certificate: give it the content of the \
             .pem file with BEGIN PRIVATE KEY in it, without a password"
                .to_owned(),
        )
    })
}
