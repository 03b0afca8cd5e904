//! `knarr dashboard open`: an address that signs whoever has the kubeconfig in, once.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Context;
use serde_json::Value;

#[derive(clap::Args)]
#[group(skip)]
pub struct Flags {
    /// Where the server keeps everything.
    #[arg(long, env = "KNARR_DATA_DIR", default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    /// How to reach the cluster; the server's own <data-dir>/admin.kubeconfig unless told otherwise.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Only print the address.
    #[arg(long)]
    print: bool,
}

pub fn run(flags: Flags) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let address = runtime.block_on(address(&flags))?;
    println!("{address}");
    let desktop = ["WAYLAND_DISPLAY", "DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    if desktop && !flags.print {
        let opened = Command::new("xdg-open").arg(&address).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        if let Err(error) = opened {
            eprintln!("cannot open a browser with xdg-open: {error}; open the address yourself");
        }
    }
    Ok(())
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
            anyhow::anyhow!("{server} serves no dashboard: it was started with --disable dashboard, or is no knarr")
        }
        error => anyhow::Error::from(error).context(format!("ask {server} for a code")),
    })?;
    let code = answer["code"].as_str().context("the server answered without a code")?;
    Ok(format!("{}/dashboard/signin#code={code}", server.trim_end_matches('/')))
}
