//! `knarr dashboard open`: an address that signs whoever has the kubeconfig in, once.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

/// By then a browser has read its file.
const READ_WITHIN: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
#[group(skip)]
pub struct Flags {
    /// Data directory of the server.
    #[arg(long, env = "KNARR_DATA_DIR", default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    /// Kubeconfig of the cluster (default: <data-dir>/admin.kubeconfig of the server).
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Print the address without opening a browser.
    #[arg(long)]
    print: bool,
}

pub fn run(flags: Flags) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let address = runtime.block_on(address(&flags))?;
    println!("{address}");
    if !flags.print
        && let Some(folder) = desktop_folder()
        && let Err(error) = open_browser(&folder, &address)
    {
        eprintln!("cannot open a browser: {error:#}; open the address yourself");
    }
    Ok(())
}

/// A folder of this user's alone, on a machine with a desktop.
fn desktop_folder() -> Option<PathBuf> {
    let desktop = ["WAYLAND_DISPLAY", "DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    std::env::var_os("XDG_RUNTIME_DIR").filter(|_| desktop).map(PathBuf::from)
}

/// Everybody on the machine sees command lines, and the code in one would sign them in before the browser: it is told by a
/// file that only this user can read, which is taken away again.
fn open_browser(folder: &Path, address: &str) -> anyhow::Result<()> {
    let file = folder.join(format!("knarr-dashboard-{}.html", std::process::id()));
    let page =
        format!("<!doctype html><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"0;url={address}\">");
    kube_apiserver::pki::write_private_file(&file, &page)?;
    let opened = Command::new("xdg-open").arg(&file).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    if opened.is_ok() {
        std::thread::sleep(READ_WITHIN);
    }
    std::fs::remove_file(&file).with_context(|| format!("remove {}", file.display()))?;
    opened.map(|_| ()).context("run xdg-open")
}

/// The server makes the code; it is good for one sign-in within a few minutes, at that very server.
async fn address(flags: &Flags) -> anyhow::Result<String> {
    let kubeconfig = flags.kubeconfig.clone().unwrap_or_else(|| flags.data_dir.join("admin.kubeconfig"));
    let config = crate::alone::from_file(&kubeconfig).await?;
    let server = config.cluster_url.to_string();
    let client = crate::alone::client(config, super::AGENT)?;
    let request = http::Request::post("/dashboard/api/codes").body(Vec::new())?;
    let answer: Value = client.request(request).await.map_err(|error| match error {
        kube::Error::Api(said) if said.code == 404 => {
            anyhow::anyhow!("{server} serves no dashboard: it was started with --disable dashboard, or is not knarr")
        }
        error => anyhow::Error::from(error).context(format!("ask {server} for a code")),
    })?;
    let code = answer["code"].as_str().context("the response has no sign-in code")?;
    Ok(format!("{}/dashboard/signin#code={code}", server.trim_end_matches('/')))
}
