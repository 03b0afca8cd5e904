//! Certificates, keys and trusted CAs of the server: generated, or set by the operator.

use super::{ClientAuthorities, Error, Leaf, Material, NamedPair, Pair};

/// Certificates are PEM, keys are PKCS#8.
#[derive(Clone, Debug, PartialEq)]
pub struct Credentials {
    /// What the server shows to its clients.
    pub serving: Pair,
    /// What it shows to those who ask for certain names.
    pub named: Vec<NamedPair>,
    /// Whose client certificates are believed; without one, nobody's.
    pub client_ca: Option<String>,
    /// Whose certificates make a proxy's word about its users believable.
    pub front_proxy_ca: Option<String>,
    /// What the server shows to kubelets.
    pub kubelet_client: Option<Pair>,
    /// Whose certificates kubelets must show; without one, anyone's.
    pub kubelet_ca: Option<String>,
    /// What the server shows to aggregated API servers.
    pub front_proxy_client: Option<Pair>,
    /// Signs service account tokens.
    pub service_account_key: String,
    /// More keys that service account tokens may be signed with, each `PUBLIC KEY`.
    pub service_account_public_keys: Vec<String>,
}

impl Credentials {
    /// Whose client certificates are believed.
    pub(crate) fn client_authorities(&self) -> Result<ClientAuthorities, Error> {
        ClientAuthorities::new(self.client_ca.as_deref(), self.front_proxy_ca.as_deref())
    }
}

impl Material {
    /// What the cluster made for itself.
    pub fn credentials(&self, verify_kubelets: bool) -> Credentials {
        let authority = self.cluster_ca.certificate_pem.clone();
        Credentials {
            serving: self.leaf(Leaf::Serving).clone(),
            named: Vec::new(),
            client_ca: Some(authority.clone()),
            front_proxy_ca: Some(self.front_proxy_ca.certificate_pem.clone()),
            kubelet_client: Some(self.leaf(Leaf::KubeletClient).clone()),
            kubelet_ca: verify_kubelets.then_some(authority),
            front_proxy_client: Some(self.leaf(Leaf::FrontProxyClient).clone()),
            service_account_key: self.service_account_key_pem.clone(),
            service_account_public_keys: Vec::new(),
        }
    }
}
