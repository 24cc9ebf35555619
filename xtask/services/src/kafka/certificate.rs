//! The certificate of a Kafka broker.

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// A certificate from an authority whose key is not kept, as PEM.
pub(super) struct Certificate {
    /// The certificate of the authority.
    pub(super) authority: String,
    /// The broker's key and certificate.
    pub(super) broker: String,
}

impl Certificate {
    /// Creates an authority, and a certificate for this host name.
    pub(super) fn new(host: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        // By default, this name is also that of the broker's certificate, which OpenSSL would then take for self-signed.
        params.distinguished_name.push(DnType::CommonName, "the authority of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec![host.to_owned()])?.signed_by(&key, &authority)?;
        Ok(Self { authority: authority.pem(), broker: key.serialize_pem() + &certificate.pem() })
    }
}
