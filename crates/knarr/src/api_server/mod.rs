//! `knarr kube-apiserver`: the API server by itself, with upstream's flags. No controllers, no scheduler, no node, and no
//! roles or objects beyond those that upstream's makes.

mod credentials;

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::ArgAction::Set;
use kube_apiserver::Clock;
use kube_apiserver::authn::FrontProxy;
use kube_apiserver::authz::Mode;
use kube_apiserver::options::Options;
use kube_apiserver::{Credentials, ExternalCredentials};
use reconcile::Shutdown;
use store::Store;
use store::prefixed::Prefixed;

#[derive(clap::Args)]
pub struct Flags {
    /// etcd endpoints, such as https://127.0.0.1:2379.
    #[arg(long, value_delimiter = ',', required = true)]
    etcd_servers: Vec<String>,
    /// CA of etcd serving certificates.
    #[arg(long)]
    etcd_cafile: Option<PathBuf>,
    /// Client certificate for etcd.
    #[arg(long, requires = "etcd_keyfile")]
    etcd_certfile: Option<PathBuf>,
    /// Private key of the client certificate for etcd.
    #[arg(long, requires = "etcd_certfile")]
    etcd_keyfile: Option<PathBuf>,
    /// Prefix of all keys in etcd.
    #[arg(long, default_value = "/registry")]
    etcd_prefix: String,
    /// Maximum time to wait for etcd at the start.
    #[arg(long, value_parser = crate::leader::duration, default_value = "1m")]
    storage_initialization_timeout: Duration,
    /// Address to listen on.
    #[arg(long, default_value = "0.0.0.0")]
    bind_address: IpAddr,
    /// Port of the Kubernetes API.
    #[arg(long, default_value_t = 6443)]
    secure_port: u16,
    /// Address by which others reach this server.
    #[arg(long)]
    advertise_address: Option<IpAddr>,
    #[command(flatten)]
    credentials: credentials::Flags,
    #[command(flatten)]
    limits: crate::api_flags::Flags,
    #[command(flatten)]
    identity: crate::identity::Flags,
    /// CIDR of Service addresses.
    #[arg(long, value_delimiter = ',', default_value = "10.0.0.0/24")]
    service_cluster_ip_range: Vec<ipnet::IpNet>,
    /// Port range of NodePort Services, as first-last or first+count.
    #[arg(long, default_value = "30000-32767", value_parser = crate::options::port_range)]
    service_node_port_range: RangeInclusive<u16>,
    /// Accept bootstrap tokens (Secrets of type bootstrap.kubernetes.io/token).
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = Set)]
    enable_bootstrap_token_auth: bool,
    /// Read static tokens from this file, with lines of token,user,uid,"group1,group2".
    #[arg(long)]
    token_auth_file: Option<PathBuf>,
    #[command(flatten)]
    admission: crate::admission::Flags,
    /// Allow privileged containers.
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = Set)]
    allow_privileged: bool,
    /// Node address types for connections to kubelets, in order of preference.
    #[arg(long, value_delimiter = ',', default_value = "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP")]
    kubelet_preferred_address_types: Vec<String>,
    /// Common names of authenticating proxies (default: every certificate of their CA).
    #[arg(long, value_delimiter = ',')]
    requestheader_allowed_names: Vec<String>,
    /// Request headers with the user name.
    #[arg(long, value_delimiter = ',')]
    requestheader_username_headers: Vec<String>,
    /// Request headers with the user's uid.
    #[arg(long, value_delimiter = ',')]
    requestheader_uid_headers: Vec<String>,
    /// Request headers with the user's groups.
    #[arg(long, value_delimiter = ',')]
    requestheader_group_headers: Vec<String>,
    /// Prefix of request headers with extra user information.
    #[arg(long, value_delimiter = ',')]
    requestheader_extra_headers_prefix: Vec<String>,
    /// Time to keep Events.
    #[arg(long, value_parser = crate::leader::duration, default_value = "1h")]
    event_ttl: Duration,
    /// Time to go on serving after the signal to stop, while /readyz already fails.
    #[arg(long, value_parser = crate::leader::duration, default_value = "0s")]
    shutdown_delay_duration: Duration,
    /// After the delay, answer new requests with 429 and Retry-After until those at work have ended.
    #[arg(long, default_value_t = false, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    shutdown_send_retry_after: bool,
    /// EgressSelectorConfiguration file. knarr reaches nodes, neighbours and etcd directly: a file that wants a proxy is refused.
    #[arg(long)]
    egress_selector_config_file: Option<PathBuf>,
    /// What `/flagz` shows besides what the server says itself.
    #[arg(skip)]
    pub shown: kube_apiserver::options::Flags,
}

/// Until it is told to stop.
pub fn run(flags: Flags) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("knarr").build()?;
    runtime.block_on(serve(flags))
}

async fn serve(flags: Flags) -> anyhow::Result<()> {
    let config = flags.config()?;
    let shutdown = Shutdown::new();
    component_base::shutdown::cancel_on_signal(&shutdown)?;
    let store = tokio::select! {
        store = connect(&flags) => store?,
        () = shutdown.cancelled() => return Ok(()),
    };
    kube_apiserver::run(config, store, shutdown).await.context("start API server")
}

/// Upstream waits for etcd, which may be started at the same time.
async fn connect(flags: &Flags) -> anyhow::Result<Arc<dyn Store>> {
    const BETWEEN: Duration = Duration::from_secs(1);
    let read = |path: &Option<PathBuf>| -> anyhow::Result<Option<Vec<u8>>> {
        let Some(path) = path else { return Ok(None) };
        Ok(Some(std::fs::read(path).with_context(|| format!("read {}", path.display()))?))
    };
    let config = store::etcd::Config {
        endpoints: flags.etcd_servers.clone(),
        ca: read(&flags.etcd_cafile)?,
        cert: read(&flags.etcd_certfile)?,
        key: read(&flags.etcd_keyfile)?,
        ..Default::default()
    };
    let began = tokio::time::Instant::now();
    loop {
        match store::etcd::EtcdStore::connect(config.clone()).await {
            Ok(store) => return Ok(Prefixed::wrap(Arc::new(store), &flags.etcd_prefix)),
            Err(error) if began.elapsed() >= flags.storage_initialization_timeout => {
                return Err(error).context("connect to etcd");
            }
            Err(error) => tracing::warn!(%error, "cannot reach etcd yet; retrying"),
        }
        tokio::time::sleep(BETWEEN).await;
    }
}

impl Flags {
    fn config(&self) -> anyhow::Result<kube_apiserver::Config> {
        let [service_cidr] = self.service_cluster_ip_range[..] else {
            bail!("--service-cluster-ip-range: dual-stack Services are not supported: set one range");
        };
        let credentials = self.credentials.clone();
        let files = credentials.followed_files();
        let read = move || credentials.read().map_err(|error| format!("{error:#}").into());
        Ok(kube_apiserver::Config {
            credentials: Credentials::External(ExternalCredentials::new(read, files)),
            bind_address: self.bind_address,
            https_port: self.secure_port,
            advertise_address: self.advertise_address,
            service_cidr,
            cluster_domain: "cluster.local".to_owned(),
            node_ports: self.service_node_port_range.clone(),
            host_name: crate::server::host_name(),
            token_auth_file: self.token_auth_file.clone(),
            event_ttl: self.event_ttl,
            shared_store: true,
            attached: Vec::new(),
            flow: self.limits.flow(),
            audit: self.limits.audit(),
            options: Options {
                encryption: self.encryption()?,
                storage_media: self.limits.storage_media(),
                signing_endpoint: self.credentials.signing_endpoint()?,
                ..self.options()?
            },
            flags: self.file_flags(),
            clock: Clock::system(),
        })
    }

    fn encryption(&self) -> anyhow::Result<kube_apiserver::encryption::Settings> {
        let encryption = self.limits.encryption()?;
        Ok(kube_apiserver::encryption::Settings {
            is_shared: true,
            key_prefix: format!("/{}", self.etcd_prefix.trim_matches('/')),
            ..encryption
        })
    }

    /// Which files are used, as `/flagz` shows them.
    fn file_flags(&self) -> kube_apiserver::options::Flags {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let mut flags = self.shown.clone();
        flags.extend(self.credentials.flags());
        flags.extend([
            ("etcd-servers".to_owned(), self.etcd_servers.join(",")),
            ("etcd-cafile".to_owned(), path(&self.etcd_cafile)),
            ("etcd-certfile".to_owned(), path(&self.etcd_certfile)),
            ("etcd-keyfile".to_owned(), path(&self.etcd_keyfile)),
            ("etcd-prefix".to_owned(), self.etcd_prefix.clone()),
        ]);
        flags
    }

    fn options(&self) -> anyhow::Result<Options> {
        ensure!(self.identity.names_issuer(), "service-account-issuer is a required flag");
        // What cannot be used is said before anything starts.
        self.egress_selector_config_file.as_deref().map(kube_apiserver::options::check_egress).transpose()?;
        let base = Options {
            egress_file: self.egress_selector_config_file.clone(),
            bootstrap_tokens: self.enable_bootstrap_token_auth,
            allow_privileged: self.allow_privileged,
            front_proxy: FrontProxy {
                allowed_names: self.requestheader_allowed_names.clone(),
                user_headers: self.requestheader_username_headers.clone(),
                uid_headers: self.requestheader_uid_headers.clone(),
                group_headers: self.requestheader_group_headers.clone(),
                extra_prefixes: self.requestheader_extra_headers_prefix.clone(),
            },
            kubelet_address_types: self.kubelet_preferred_address_types.clone(),
            shutdown_delay: self.shutdown_delay_duration,
            shutdown_send_retry_after: self.shutdown_send_retry_after,
            ..self.limits.serving(Options::default())?
        };
        let base = self.admission.options_as_upstream(base)?;
        self.identity.options(crate::identity::Defaults { modes: &[Mode::AlwaysAllow] }, base)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Given {
        #[command(flatten)]
        flags: Flags,
    }

    /// What kubeadm writes into the manifest of the static pod.
    const KUBEADM: &str = "--advertise-address=10.0.0.1 --allow-privileged=true --authorization-mode=Node,RBAC \
        --client-ca-file=/etc/kubernetes/pki/ca.crt --enable-admission-plugins=NodeRestriction \
        --enable-bootstrap-token-auth=true --etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt \
        --etcd-certfile=/etc/kubernetes/pki/apiserver-etcd-client.crt \
        --etcd-keyfile=/etc/kubernetes/pki/apiserver-etcd-client.key --etcd-servers=https://127.0.0.1:2379 \
        --kubelet-client-certificate=/etc/kubernetes/pki/apiserver-kubelet-client.crt \
        --kubelet-client-key=/etc/kubernetes/pki/apiserver-kubelet-client.key \
        --kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname \
        --proxy-client-cert-file=/etc/kubernetes/pki/front-proxy-client.crt \
        --proxy-client-key-file=/etc/kubernetes/pki/front-proxy-client.key \
        --requestheader-allowed-names=front-proxy-client \
        --requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt \
        --requestheader-extra-headers-prefix=X-Remote-Extra- --requestheader-group-headers=X-Remote-Group \
        --requestheader-username-headers=X-Remote-User --secure-port=6443 \
        --service-account-issuer=https://kubernetes.default.svc.cluster.local \
        --service-account-key-file=/etc/kubernetes/pki/sa.pub \
        --service-account-signing-key-file=/etc/kubernetes/pki/sa.key --service-cluster-ip-range=10.96.0.0/12 \
        --tls-cert-file=/etc/kubernetes/pki/apiserver.crt --tls-private-key-file=/etc/kubernetes/pki/apiserver.key";

    fn given(line: &str) -> Flags {
        let sifted = crate::upstream::sift(
            ["knarr", "kube-apiserver"]
                .into_iter()
                .chain(line.split(' '))
                .filter(|word| !word.is_empty())
                .map(Into::into),
        );
        Given::parse_from(sifted.unwrap().arguments.into_iter().skip(1)).flags
    }

    #[test]
    fn what_kubeadm_passes_is_taken_and_means_the_same() {
        let flags = given(KUBEADM);
        let config = flags.config().unwrap();
        assert_eq!(config.service_cidr.to_string(), "10.96.0.0/12");
        let options = flags.options().unwrap();
        assert_eq!(options.authorization.modes, [Mode::Node, Mode::Rbac]);
        assert!(options.anonymous && options.bootstrap_tokens && options.allow_privileged);
        assert!(options.admission_off.is_empty(), "NodeRestriction runs");
        assert_eq!(options.front_proxy, FrontProxy { uid_headers: Vec::new(), ..FrontProxy::default() });
        assert_eq!(options.issuers, ["https://kubernetes.default.svc.cluster.local"]);
    }

    #[test]
    fn what_is_not_said_is_as_upstream_has_it() {
        let flags = given(
            "--etcd-servers=http://a:2379 --service-account-issuer=https://i --service-account-signing-key-file=k",
        );
        let options = flags.options().unwrap();
        assert_eq!(options.authorization.modes, [Mode::AlwaysAllow]);
        assert!(!options.anonymous && !options.bootstrap_tokens && !options.allow_privileged);
        assert!(options.admission_off.contains("NodeRestriction"));
        assert!(flags.config().is_ok());
        let two = given(
            "--etcd-servers=a --service-account-issuer=i --service-account-signing-key-file=k --service-cluster-ip-range=10.0.0.0/24,fd00::/108",
        );
        assert!(two.config().err().expect("refused").to_string().contains("dual-stack"));
    }
}
