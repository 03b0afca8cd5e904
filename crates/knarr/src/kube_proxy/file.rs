//! A KubeProxyConfiguration, as far as it is about what knarr does.

use std::path::{Path, PathBuf};

use anyhow::Context;
use kube_proxy::{HEALTH_PORT, METRICS_PORT};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Flags, with_port};
use crate::component_config;

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
pub struct File {
    bind_address: String,
    client_connection: Connection,
    #[serde(rename = "clusterCIDR")]
    cluster_cidr: String,
    conntrack: super::connections::Fields,
    hostname_override: String,
    healthz_bind_address: String,
    metrics_bind_address: String,
    node_port_addresses: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
struct Connection {
    kubeconfig: String,
}

const OWN: [&str; 8] = [
    "bindAddress",
    "clientConnection",
    "clusterCIDR",
    "conntrack",
    "hostnameOverride",
    "healthzBindAddress",
    "metricsBindAddress",
    "nodePortAddresses",
];

/// The other fields that there are, and what they may say.
const KNOWN: &[(&str, &[&str])] = &[
    ("mode", &["nftables"]),
    ("bindAddressHardFail", &["*"]),
    ("configSyncPeriod", &["*"]),
    ("detectLocal", &[]),
    ("detectLocalMode", &["ClusterCIDR"]),
    ("enableProfiling", &[]),
    ("featureGates", &[]),
    // For modes that are not used.
    ("iptables", &["*"]),
    ("ipvs", &["*"]),
    ("logging", &["*"]),
    ("nftables", &[]),
    ("oomScoreAdj", &["*"]),
    ("portRange", &[]),
    ("showHiddenMetricsForVersion", &["*"]),
    ("udpIdleTimeout", &["*"]),
    ("winkernel", &["*"]),
    ("windowsRunAsService", &[]),
];

impl File {
    pub fn read(path: &Path) -> anyhow::Result<File> {
        File::of(component_config::read(path, "kubeproxy.config.k8s.io/v1alpha1", "KubeProxyConfiguration")?)
    }

    fn of(mut fields: Map<String, Value>) -> anyhow::Result<File> {
        let own: Map<String, Value> = OWN.iter().filter_map(|name| fields.remove_entry(*name)).collect();
        component_config::refuse_rest(&fields, KNOWN)?;
        serde_json::from_value(own.into()).context("decode fields")
    }

    /// Puts what the file says in the place of what the flags say.
    pub fn apply(self, flags: &mut Flags) {
        let said = |text: String| Some(text).filter(|text| !text.is_empty());
        if let Some(address) = said(self.bind_address).and_then(|text| text.parse().ok()) {
            flags.bind_address = address;
        }
        let ranges: Vec<ipnet::IpNet> = self.cluster_cidr.split(',').filter_map(|range| range.parse().ok()).collect();
        if !ranges.is_empty() {
            flags.cluster_cidr = ranges;
        }
        if let Some(path) = said(self.client_connection.kubeconfig) {
            flags.cluster.kubeconfig = Some(PathBuf::from(path));
        }
        self.conntrack.apply(&mut flags.connections);
        flags.hostname_override = said(self.hostname_override).or(flags.hostname_override.take());
        if let Some(text) = said(self.healthz_bind_address) {
            flags.options.proxy_healthz_address = with_port(&text, HEALTH_PORT);
        }
        if let Some(text) = said(self.metrics_bind_address) {
            flags.options.proxy_metrics_address = with_port(&text, METRICS_PORT);
        }
        if let Some(addresses) = self.node_port_addresses.filter(|addresses| !addresses.is_empty()) {
            flags.options.nodeport_addresses = addresses;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What kubeadm writes.
    const KUBEADM: &str = r#"
apiVersion: kubeproxy.config.k8s.io/v1alpha1
bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection:
  acceptContentTypes: ""
  burst: 0
  contentType: ""
  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf
  qps: 0
clusterCIDR: 10.244.0.0/16
configSyncPeriod: 0s
conntrack:
  maxPerCore: null
  min: null
  tcpBeLiberal: false
  tcpCloseWaitTimeout: null
  tcpEstablishedTimeout: null
  udpStreamTimeout: 0s
  udpTimeout: 0s
detectLocal:
  bridgeInterface: ""
  interfaceNamePrefix: ""
detectLocalMode: ""
enableProfiling: false
healthzBindAddress: ""
hostnameOverride: ""
iptables:
  localhostNodePorts: null
  masqueradeAll: false
  masqueradeBit: null
  minSyncPeriod: 0s
  syncPeriod: 0s
ipvs:
  excludeCIDRs: null
  minSyncPeriod: 0s
  scheduler: ""
  strictARP: false
kind: KubeProxyConfiguration
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: "0"
    text:
      infoBufferSize: "0"
  verbosity: 0
metricsBindAddress: ""
mode: ""
nftables:
  masqueradeAll: false
  masqueradeBit: null
  minSyncPeriod: 0s
  syncPeriod: 0s
nodePortAddresses: null
oomScoreAdj: null
portRange: ""
showHiddenMetricsForVersion: ""
winkernel:
  enableDSR: false
  forwardHealthCheckVip: false
  networkName: ""
  rootHnsEndpointName: ""
  sourceVip: ""
"#;

    fn read(text: &str) -> anyhow::Result<File> {
        File::of(component_config::parse(
            text.as_bytes(),
            "kubeproxy.config.k8s.io/v1alpha1",
            "KubeProxyConfiguration",
        )?)
    }

    #[test]
    fn kubeadms_file_is_read() {
        let file = read(KUBEADM).unwrap();
        assert_eq!(file.client_connection.kubeconfig, "/var/lib/kube-proxy/kubeconfig.conf");
        assert_eq!((file.cluster_cidr.as_str(), file.bind_address.as_str()), ("10.244.0.0/16", "0.0.0.0"));
    }

    #[test]
    fn another_mode_is_refused() {
        let with_mode = |mode: &str| read(&KUBEADM.replace("mode: \"\"", &format!("mode: {mode}")));
        assert!(with_mode("nftables").is_ok());
        assert!(with_mode("ipvs").unwrap_err().to_string().starts_with("mode: ipvs"));
    }
}
