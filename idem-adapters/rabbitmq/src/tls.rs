//! TLS: trusted authorities and the client certificate.

use idem_core::Error;
use lapin::tcp::{RustlsConnector, RustlsConnectorConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// The certificates and keys set by the caller, as PEM.
#[derive(Default)]
pub(crate) struct Tls {
    /// The trusted authorities, instead of the system's.
    pub(crate) ca: Option<Vec<u8>>,
    /// The client certificate with its intermediates, and its key.
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    /// Returns a connector that requires a certificate from a trusted authority for the host name.
    pub(crate) fn connector(&self) -> Result<RustlsConnector, Error> {
        let roots = match &self.ca {
            None => RustlsConnectorConfig::new_with_native_certs().map_err(|error| {
                refused(format!("{error}: install the system's certificates (ca-certificates), or use .tls_ca(pem)"))
            })?,
            Some(pem) => {
                RustlsConnectorConfig::default().with_parsable_certificates(certificates(pem, "given to .tls_ca")?)
            }
        };
        // Uses the process's default crypto provider if one is installed; otherwise ring, which becomes the default.
        let connector = match &self.client {
            None => roots.connector_with_no_client_auth(),
            Some((chain, key)) => {
                let chain = certificates(chain, "of the certificate given to .tls_identity")?;
                roots.connector_with_single_cert(chain, private_key(key)?)
            }
        };
        connector.map_err(|error| refused(error.to_string()))
    }
}

fn certificates(pem: &[u8], which: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().ok();
    certificates.filter(|certificates| !certificates.is_empty()).ok_or_else(|| {
        refused(format!(
            "the text {which} holds no certificate: give it the content of a .pem file with BEGIN CERTIFICATE in it"
        ))
    })
}

/// Does not pass on the parser's error, so that no part of the key can appear in it.
fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| {
        refused(
            "the text of the key given to .tls_identity holds no private key: give it the content of a .pem file with \
             BEGIN PRIVATE KEY in it; a key that is encrypted has to be decrypted before"
                .to_owned(),
        )
    })
}

fn refused(what: String) -> Error {
    Error::Config(format!("TLS cannot be set up: {what}"))
}
