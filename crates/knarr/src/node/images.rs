//! Images that need no registry: the built-in one, and archives in a folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use container_runtime::image::Images;

/// The names of what needs no registry; `imagePullPolicy: Always`, the default of `latest`, finds them here too.
pub fn built_in_images() -> Vec<String> {
    vec![demo_image::NAME.into(), demo_image::VERSIONED_NAME.into()]
}

/// The image that needs no registry. It is in the program, and taken out of it once.
pub(super) async fn import_demo(images: &Images, data_dir: &Path) -> anyhow::Result<()> {
    // By its digest: another build of the same version may carry another image.
    let repository = demo_image::NAME.rsplit_once(':').map_or(demo_image::NAME, |(repository, _)| repository);
    if images.get(&format!("{repository}@{}", demo_image::digest())).is_some() {
        return Ok(());
    }
    let archive = data_dir.join("demo-image.tar");
    tokio::fs::write(&archive, demo_image::archive()).await?;
    let imported = images.import(&archive).await;
    tokio::fs::remove_file(&archive).await?;
    imported?;
    Ok(images.pin(demo_image::NAME, true).await?)
}

/// Takes in every archive that someone put there, so that a node needs no registry.
pub(super) async fn import_folder(images: Arc<Images>, folder: PathBuf) {
    match images.import_folder(&folder).await {
        Err(error) => tracing::warn!(folder = %folder.display(), %error, "cannot read folder of image archives"),
        Ok(imported) => {
            for (archive, outcome) in imported {
                match outcome {
                    Ok(names) => tracing::info!(archive = %archive.display(), ?names, "imported image archive"),
                    Err(error) => tracing::warn!(archive = %archive.display(), %error, "cannot import image archive"),
                }
            }
        }
    }
}
