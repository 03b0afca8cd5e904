//! Verifies that a certificate belongs to one node's kubelet. Servers and other nodes have certificates of the same authority, and a
//! node can announce their addresses as its own.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, SignatureScheme};
use x509_parser::prelude::{FromDer, X509Certificate};

/// What API servers are called in their certificates, here and by kubeadm.
const API_SERVER: &str = "kube-apiserver";
const NODE_PREFIX: &str = "system:node:";

/// Takes what the other verifier takes for the address or for the node's name, unless it is a server's or another node's.
pub fn kubelet_verifier(node: String, verifier: Arc<dyn ServerCertVerifier>) -> Arc<dyn ServerCertVerifier> {
    Arc::new(KubeletVerifier { node, verifier })
}

#[derive(Debug)]
struct KubeletVerifier {
    node: String,
    verifier: Arc<dyn ServerCertVerifier>,
}

/// Whether a certificate of that subject can be the node's. Those of other makes may have any name.
fn may_be_of(common_name: &str, node: &str) -> bool {
    common_name != API_SERVER && common_name.strip_prefix(NODE_PREFIX).is_none_or(|name| name == node)
}

impl ServerCertVerifier for KubeletVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
        let common_name = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok()).next();
        if !may_be_of(common_name.unwrap_or_default(), &self.node) {
            return Err(CertificateError::NotValidForName.into());
        }
        let by_address = self.verifier.verify_server_cert(certificate, intermediates, name, ocsp, now);
        match ServerName::try_from(self.node.as_str()) {
            Ok(node) if by_address.is_err() => {
                let by_name = self.verifier.verify_server_cert(certificate, intermediates, &node, ocsp, now);
                by_name.or(by_address)
            }
            _ => by_address,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        crate::verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        crate::verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        crate::supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_of_a_server_or_of_another_node_is_not_the_nodes() {
        for (common_name, expected) in [
            ("system:node:n1", true),
            ("system:node:n2", false),
            ("kube-apiserver", false),
            ("n1.example.com", true),
            ("", true),
        ] {
            assert_eq!(may_be_of(common_name, "n1"), expected, "{common_name}");
        }
        // Also for a node that is called as every server is.
        assert!(!may_be_of("kube-apiserver", "localhost"));
    }
}
