//! `knarr image`: the images of this machine, also while the server runs.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use container_runtime::image::registries::Registries;
use container_runtime::image::{Credentials, Image, Images, ImagesConfig, ProgressNow};

use crate::progress::Busy;

const LAYER_PULLS_MAX: usize = 3;
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
const SHORT_ID_LENGTH: usize = 13;
const BAR_WIDTH: usize = 30;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Pull an image from its registry.
    Pull {
        image: String,
        /// Credentials as USER or USER:PASSWORD; a missing password is read from standard input.
        #[arg(long)]
        creds: Option<String>,
        #[command(flatten)]
        place: Place,
    },
    /// Import images from archives: OCI layouts or `docker save` output, also compressed. `-` is standard input.
    Import {
        #[arg(required = true)]
        archives: Vec<PathBuf>,
        #[command(flatten)]
        place: Place,
    },
    /// List images.
    #[command(visible_alias = "ls")]
    List {
        /// Print only image ids.
        #[arg(short, long)]
        quiet: bool,
        /// Print digests too.
        #[arg(long)]
        digests: bool,
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
        #[command(flatten)]
        place: Place,
    },
    /// Remove image names; removing the last name deletes the image.
    #[command(visible_alias = "remove")]
    Rm {
        #[arg(required = true)]
        images: Vec<String>,
        #[command(flatten)]
        place: Place,
    },
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Output {
    Table,
    Json,
}

#[derive(clap::Args)]
pub struct Place {
    #[arg(long, env = "KNARR_DATA_DIR", default_value = "/var/lib/knarr")]
    data_dir: PathBuf,
    /// File with mirrors, credentials and CAs of image registries.
    #[arg(long, env = "KNARR_PRIVATE_REGISTRY", default_value = "/etc/knarr/registries.yaml")]
    private_registry: PathBuf,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
pub async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Pull { image, creds, place } => {
            let credentials = creds.map(|creds| credentials(&creds)).transpose()?;
            pull(&open(&place).await?, &image, credentials).await
        }
        Command::Import { archives, place } => {
            let images = open(&place).await?;
            for archive in archives {
                let busy = Busy::begin(format!("importing {}", archive.display()));
                let names = import(&images, &archive, &place.data_dir).await?;
                drop(busy);
                for name in names {
                    println!("{name}");
                }
            }
            Ok(())
        }
        Command::List { quiet, digests, output, place } => {
            let images = open(&place).await?.list();
            let text = match output {
                Output::Json => serde_json::to_string_pretty(&images)? + "\n",
                Output::Table if quiet => images.iter().map(|image| format!("{}\n", image.id)).collect(),
                Output::Table => table(&images, digests),
            };
            // A reader that has seen enough is no error.
            let _ = std::io::stdout().write_all(text.as_bytes());
            Ok(())
        }
        Command::Rm { images: names, place } => {
            let images = open(&place).await?;
            for name in names {
                if images.get(&name).is_none() {
                    bail!("image {name} not found");
                }
                images.remove(&name).await?;
                println!("Deleted: {name}");
            }
            Ok(())
        }
    }
}

impl Place {
    pub fn registries(&self) -> anyhow::Result<Registries> {
        let path = &self.private_registry;
        match std::fs::read_to_string(path) {
            Ok(text) => Registries::parse(&text).with_context(|| format!("read {}", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Registries::default()),
            Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
        }
    }
}

async fn open(place: &Place) -> anyhow::Result<Arc<Images>> {
    open_in(&place.data_dir, place.registries()?).await
}

/// The images of this data folder, unless it never had any.
pub async fn open_if_there(place: &Place) -> anyhow::Result<Option<Arc<Images>>> {
    if root_dir(&place.data_dir).is_dir() { open(place).await.map(Some) } else { Ok(None) }
}

pub async fn open_in(data_dir: &Path, registries: Registries) -> anyhow::Result<Arc<Images>> {
    let (root_dir, built_in) = (root_dir(data_dir), crate::node::built_in_images());
    Ok(Images::open(ImagesConfig { root_dir, registries, layer_pulls_max: LAYER_PULLS_MAX, built_in }).await?)
}

fn root_dir(data_dir: &Path) -> PathBuf {
    ImagesConfig::root_dir_of(&data_dir.join("runtime"))
}

async fn pull(images: &Arc<Images>, image: &str, credentials: Option<Credentials>) -> anyhow::Result<()> {
    let is_terminal = std::io::stderr().is_terminal();
    if !is_terminal {
        eprintln!("pulling {image}");
    }
    let work = images.pull(image, credentials);
    tokio::pin!(work);
    let result = loop {
        tokio::select! {
            result = &mut work => break result,
            () = tokio::time::sleep(PROGRESS_INTERVAL), if is_terminal => {
                if let Some(now) = images.progress(image) {
                    eprint!("\r\x1b[K{}", bar(now));
                }
            }
        }
    };
    if is_terminal {
        eprint!("\r\x1b[K");
    }
    println!("Image is up to date for {}", result?);
    Ok(())
}

/// Takes an archive, or standard input, which is kept in this folder meanwhile.
pub async fn import(images: &Arc<Images>, archive: &Path, folder: &Path) -> anyhow::Result<Vec<String>> {
    if archive != Path::new("-") {
        return Ok(images.import(archive).await?);
    }
    let spool = Spool::new(folder);
    let mut file = std::fs::File::create(spool.path()).with_context(|| format!("create {}", spool.path().display()))?;
    std::io::copy(&mut std::io::stdin().lock(), &mut file).context("read standard input")?;
    Ok(images.import(spool.path()).await?)
}

/// An archive that is gone when the import ends.
pub struct Spool(PathBuf);

impl Spool {
    pub fn new(folder: &Path) -> Spool {
        Spool(folder.join(format!("import-{}.tar", std::process::id())))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // It may never have been made.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn credentials(text: &str) -> anyhow::Result<Credentials> {
    let (username, password) = match text.split_once(':') {
        Some((username, password)) => (username, password.to_owned()),
        None => {
            let mut password = String::new();
            std::io::stdin().read_line(&mut password).context("read the password")?;
            (text, password.trim_end_matches(['\r', '\n']).to_owned())
        }
    };
    Ok(Credentials { username: username.to_owned(), password, registry_token: String::new() })
}

/// `[#####.....] 12.3MB / 40MB, 2 of 5 layers`
fn bar(now: ProgressNow) -> String {
    let filled = match now.bytes_total {
        0 => 0,
        total => (now.bytes.min(total) as u128 * BAR_WIDTH as u128 / total as u128) as usize,
    };
    let rest = BAR_WIDTH - filled;
    let (bytes, total) = (human_size(now.bytes), human_size(now.bytes_total));
    format!(
        "[{}{}] {bytes} / {total}, {} of {} layers",
        "#".repeat(filled),
        ".".repeat(rest),
        now.layers,
        now.layers_total
    )
}

/// As `crictl images` prints them: one line for each tag, `<none>` for what has none.
fn table(images: &[Arc<Image>], digests: bool) -> String {
    let mut rows = vec![row("IMAGE", "TAG", digests.then_some("DIGEST"), "IMAGE ID", "SIZE")];
    let mut lines = Vec::new();
    for image in images {
        let id: String = image.id.trim_start_matches("sha256:").chars().take(SHORT_ID_LENGTH).collect();
        let size = human_size(image.size);
        let digest_of = |repository: &str| {
            let found = image.repo_digests.iter().find_map(|digest| digest.strip_prefix(repository)?.strip_prefix('@'));
            found.unwrap_or("<none>").trim_start_matches("sha256:").chars().take(SHORT_ID_LENGTH).collect::<String>()
        };
        let named: Vec<(&str, &str)> = if image.repo_tags.is_empty() {
            vec![(image.repo_digests.first().and_then(|digest| digest.split('@').next()).unwrap_or("<none>"), "<none>")]
        } else {
            image.repo_tags.iter().filter_map(|tag| tag.rsplit_once(':')).collect()
        };
        for (repository, tag) in named {
            let digest = digests.then(|| digest_of(repository));
            lines.push(row(repository, tag, digest.as_deref(), &id, &size));
        }
    }
    lines.sort();
    rows.append(&mut lines);
    let columns = rows[0].len();
    let widths: Vec<usize> = (0..columns).map(|c| rows.iter().map(|row| row[c].len()).max().unwrap_or(0) + 2).collect();
    rows.iter()
        .map(|row| {
            let line: String = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            line.trim_end().to_owned() + "\n"
        })
        .collect()
}

fn row(repository: &str, tag: &str, digest: Option<&str>, id: &str, size: &str) -> Vec<String> {
    [Some(repository), Some(tag), digest, Some(id), Some(size)].into_iter().flatten().map(str::to_owned).collect()
}

/// Three digits and a unit of a thousand: `74.2MB`.
fn human_size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut size = bytes as f64;
    let mut unit = 0;
    while size >= 1000.0 && unit < UNITS.len() - 1 {
        size /= 1000.0;
        unit += 1;
    }
    let digits = match size {
        size if size < 10.0 => 2,
        size if size < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{size:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(digit: char, tags: &[&str], digests: &[&str], size: u64) -> Arc<Image> {
        Arc::new(Image {
            id: format!("sha256:{}", digit.to_string().repeat(64)),
            repo_tags: tags.iter().map(|tag| tag.to_string()).collect(),
            repo_digests: digests.iter().map(|name| format!("{name}@sha256:{}", "d".repeat(64))).collect(),
            size,
            pinned: false,
            config: Default::default(),
        })
    }

    #[test]
    fn the_table_looks_like_crictls() {
        let images = [
            image(
                'b',
                &["docker.io/library/nginx:latest", "localhost:5000/web:v1"],
                &["docker.io/library/nginx"],
                74_200_000,
            ),
            image('a', &[], &["quay.io/old"], 4_330),
            image('c', &[], &[], 999),
        ];
        let expected = "\
IMAGE                    TAG     IMAGE ID       SIZE
<none>                   <none>  ccccccccccccc  999B
docker.io/library/nginx  latest  bbbbbbbbbbbbb  74.2MB
localhost:5000/web       v1      bbbbbbbbbbbbb  74.2MB
quay.io/old              <none>  aaaaaaaaaaaaa  4.33kB
";
        assert_eq!(table(&images, false), expected);
        assert!(table(&images[..1], true).contains("latest  ddddddddddddd  bbbbbbbbbbbbb"));
    }

    #[test]
    fn sizes_and_bars_are_for_people() {
        assert_eq!([0, 999, 1000, 1_234_567, 40_000_000_000].map(human_size), ["0B", "999B", "1kB", "1.23MB", "40GB"]);
        let now = ProgressNow { bytes: 20_000_000, bytes_total: 40_000_000, layers: 2, layers_total: 5 };
        assert_eq!(bar(now), format!("[{}{}] 20MB / 40MB, 2 of 5 layers", "#".repeat(15), ".".repeat(15)));
    }
}
