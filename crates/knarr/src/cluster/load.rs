//! `knarr cluster load`: images for every node, unpacked once.
//!
//! Each node has a store of its own, which it may clean up as it likes. What the first node unpacked, the others get as more
//! names of the same files ([`Images::share`]).

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, ensure};
use container_runtime::image::Images;
use container_runtime::image::reference::Reference;
use container_runtime::image::registries::Registries;

use super::lock;
use super::state::{Cluster, Node, check_name};
use crate::image;
use crate::progress::Busy;

/// Programs that may have an image, and can write it as an archive.
const BUILDERS: [&str; 2] = ["docker", "podman"];

#[derive(clap::Args)]
pub struct Load {
    #[arg(value_parser = check_name)]
    name: String,
    /// Archives (OCI layouts or `docker save` output; `-` is standard input) or image names: images of this machine
    /// (`knarr image list`), of docker or podman, or else pulled from their registry.
    #[arg(required = true, value_name = "ARCHIVE|IMAGE")]
    images: Vec<String>,
    #[command(flatten)]
    place: image::Place,
}

pub async fn run(dir: &Path, flags: Load) -> anyhow::Result<()> {
    let cluster = Cluster::load(dir, &flags.name)?;
    let first = cluster.nodes.first().context("cluster has no node")?;
    let first = store(&cluster, first, flags.place.registries()?).await?;
    let mut names = Vec::new();
    for given in &flags.images {
        let busy = Busy::begin(format!("loading {given}"));
        let loaded = bring(&first, given, &flags.place, &cluster.folder).await;
        drop(busy);
        names.extend(loaded.with_context(|| format!("load {given}"))?);
    }
    // Nodes may have come or gone meanwhile; from here on they wait.
    let _lock = lock()?;
    let mut cluster = Cluster::load(dir, &flags.name)?;
    for node in &cluster.nodes[1..] {
        let store = store(&cluster, node, Registries::default()).await?;
        for name in &names {
            first.share(name, &store).await.with_context(|| format!("copy image {name} to {}", node.name))?;
        }
    }
    for name in names {
        println!("loaded {name} on {} nodes", cluster.nodes.len());
        if !cluster.images.contains(&name) {
            cluster.images.push(name);
        }
    }
    // Nodes that come later get them, too.
    cluster.save()
}

/// Gives a node that is new what was loaded before it came.
pub async fn catch_up(cluster: &Cluster, node: &Node) -> anyhow::Result<()> {
    let Some(first) = cluster.nodes.first().filter(|first| first.name != node.name && !cluster.images.is_empty())
    else {
        return Ok(());
    };
    let first = store(cluster, first, Registries::default()).await?;
    let store = store(cluster, node, Registries::default()).await?;
    for name in &cluster.images {
        // Somebody may have removed it since.
        if first.get(name).is_some() {
            first.share(name, &store).await.with_context(|| format!("copy image {name} to {}", node.name))?;
        }
    }
    Ok(())
}

async fn store(cluster: &Cluster, node: &Node, registries: Registries) -> anyhow::Result<Arc<Images>> {
    image::open_in(&cluster.node_folder(node).join("data"), registries).await
}

/// Into the store of the first node, from wherever it is. Gives the names that it has there.
async fn bring(first: &Arc<Images>, given: &str, place: &image::Place, folder: &Path) -> anyhow::Result<Vec<String>> {
    if given == "-" || Path::new(given).exists() {
        return image::import(first, Path::new(given), folder).await;
    }
    let name =
        Reference::parse(given).with_context(|| format!("{given} is neither a file nor an image name"))?.to_string();
    if let Some(own) = image::open_if_there(place).await?
        && own.get(given).is_some()
    {
        own.share(given, first).await?;
        return Ok(vec![name]);
    }
    if let Some(builder) = BUILDERS.into_iter().find(|builder| has_image(builder, given)) {
        return save(builder, given, first, folder).await;
    }
    first.pull(given, None).await?;
    Ok(vec![name])
}

fn has_image(builder: &str, image: &str) -> bool {
    let mut command = Command::new(builder);
    command.args(["image", "inspect", image]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // A program that is not here has no image either.
    command.status().is_ok_and(|status| status.success())
}

async fn save(builder: &str, name: &str, first: &Arc<Images>, folder: &Path) -> anyhow::Result<Vec<String>> {
    let archive = image::Spool::new(folder);
    let mut command = Command::new(builder);
    command.args(["save", "--output"]).arg(archive.path()).arg(name).stdin(Stdio::null()).stdout(Stdio::null());
    let saved = command.status().with_context(|| format!("run {builder}"))?;
    ensure!(saved.success(), "{builder} save failed: {saved}");
    Ok(first.import(archive.path()).await?)
}
