//! Certificates and keys that the server makes itself, keeps in a folder and renews; with the administrator's kubeconfig.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use component_base::tasks;
use store::Store;
use tokio_util::sync::CancellationToken;

use crate::app::{App, Clock};
use crate::start::{Outgoing, Serving, advertise_address, serve};
use crate::{Config, Error, allocate, flagz, pki};

/// What the operator decides about them.
#[derive(Clone, Debug)]
pub struct Managed {
    /// Certificates are kept in `tls` below this folder, the administrator's kubeconfig beside it.
    pub data_dir: PathBuf,
    pub tls_sans: Vec<String>,
    /// Where else the administrator's kubeconfig is written.
    pub kubeconfig_copy: Option<PathBuf>,
    /// Of that copy, or of the kubeconfig itself where there is none.
    pub kubeconfig_mode: u32,
    /// Kubelets may show any certificate; otherwise only one of the cluster's own authority.
    pub kubelet_insecure_tls: bool,
}

/// What a server with certificates of its own has made.
pub struct Issued {
    pub kubeconfig: PathBuf,
    /// Issues the certificates of this cluster's nodes.
    pub cluster_authority: Arc<pki::Authority>,
}

pub async fn start(
    config: &mut Config,
    managed: Managed,
    store: Arc<dyn Store>,
    shutdown: CancellationToken,
) -> Result<(Serving, Issued), Error> {
    let advertise = config.advertise_address.unwrap_or_else(|| advertise_address(config.bind_address));
    let service_address = allocate::first_address(&config.service_cidr);
    let options = pki_options(config, &managed, advertise, service_address);
    let material = pki::ensure(&managed.data_dir.join("tls"), &options, config.clock.now())?;
    let verify_kubelets = !managed.kubelet_insecure_tls;
    let credentials = material.credentials(verify_kubelets);
    config.flags.extend(flagz::own_files(&material.dir, verify_kubelets));
    let serving = serve(config, &credentials, store, shutdown.clone()).await?;
    let kubeconfig = managed.data_dir.join("admin.kubeconfig");
    let host = if config.bind_address.is_unspecified() { IpAddr::from([127, 0, 0, 1]) } else { config.bind_address };
    let url = format!("https://{}", SocketAddr::new(host, serving.address.port()));
    let kubeconfigs = kubeconfigs(&managed, &kubeconfig);
    write_all(&kubeconfigs, &material.kubeconfig(pki::Leaf::Admin, &url))?;
    let cluster_authority = material.cluster_ca.clone();
    let (app, clock) = (serving.app.clone(), config.clock.clone());
    let renewed = Renewed { app, clock, verify_kubelets, url, kubeconfigs };
    tasks::spawn(renew(renewed, material, options, serving.certificate.clone(), shutdown));
    Ok((serving, Issued { kubeconfig, cluster_authority }))
}

fn pki_options(config: &Config, managed: &Managed, advertise: IpAddr, service_address: IpAddr) -> pki::Options {
    let (addresses, names): (Vec<_>, Vec<_>) = managed.tls_sans.iter().partition(|name| name.parse::<IpAddr>().is_ok());
    let mut extra_addresses: Vec<IpAddr> = addresses.iter().filter_map(|name| name.parse().ok()).collect();
    extra_addresses.push(advertise);
    if !config.bind_address.is_unspecified() {
        extra_addresses.push(config.bind_address);
    }
    pki::Options {
        host_name: config.host_name.clone(),
        cluster_domain: config.cluster_domain.clone(),
        service_addresses: vec![service_address],
        extra_names: names.into_iter().cloned().collect(),
        extra_addresses,
    }
}

/// The files that hold the administrator's kubeconfig, and their modes.
fn kubeconfigs(managed: &Managed, own: &Path) -> Vec<(PathBuf, u32)> {
    match &managed.kubeconfig_copy {
        Some(copy) => vec![(own.to_owned(), 0o600), (copy.clone(), managed.kubeconfig_mode)],
        None => vec![(own.to_owned(), managed.kubeconfig_mode)],
    }
}

fn write_all(files: &[(PathBuf, u32)], text: &str) -> Result<(), Error> {
    for (path, mode) in files {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|source| Error::Write { path: folder.to_owned(), source })?;
        }
        pki::write_file(path, text, *mode)?;
    }
    Ok(())
}

/// What gets the new certificates when they were renewed.
struct Renewed {
    app: Arc<App>,
    clock: Clock,
    verify_kubelets: bool,
    url: String,
    kubeconfigs: Vec<(PathBuf, u32)>,
}

/// Keeps certificates fresh, and the administrator's kubeconfig with them.
async fn renew(
    to: Renewed,
    material: pki::Material,
    options: pki::Options,
    serving: Arc<pki::ServingCertificate>,
    shutdown: CancellationToken,
) {
    let (sender, mut renewed) = tokio::sync::watch::channel(Arc::new(material));
    let follow = async {
        while renewed.changed().await.is_ok() {
            let material = renewed.borrow_and_update().clone();
            match Outgoing::prepare(&to.app, &material.credentials(to.verify_kubelets)) {
                Ok(next) => next.take_over(&to.app),
                Err(error) => tracing::error!(%error, "cannot renew client certificates for kubelets and aggregation"),
            }
            let text = material.kubeconfig(pki::Leaf::Admin, &to.url);
            if let Err(error) = write_all(&to.kubeconfigs, &text) {
                tracing::error!(%error, "cannot renew admin kubeconfig");
            }
        }
    };
    tokio::select! {
        () = pki::renewal_task(sender, options, to.app.settings.advertise_address.changes(), serving, || to.clock.now()) => {}
        () = follow => {}
        () = shutdown.cancelled() => {}
    }
}
